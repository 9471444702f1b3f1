"""The active controller: decides by emitting records, and knows only what replayed records say.

An operation reads the state, changes nothing, and returns a ControllerResult: the records that it
wants, and the answer that leaves when they are committed. The one way in which the state changes
is the replay of records, the same on the active controller, on its standbys, and after a restart.

`controller.py` has the queue and the life of a leadership; `state.py` what operations read; each
kind of operation has its module: brokers, topics, elections, reassignment, configs, and so on.
"""
