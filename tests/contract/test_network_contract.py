"""The contract of the Network port, over the machine's sockets and over the memory network."""

from __future__ import annotations

import errno

import pytest
import trio
from both_worlds import Place, fill, in_both_worlds, receive, receive_all, send_all

from kraftpy.world import FileSlice, SocketOptions, Stream


def patterned(length: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(length))


@in_both_worlds
async def test_bytes_go_both_ways_and_addresses_agree(place: Place) -> None:
    listener = await place.world.network.listen(place.host, 0)
    assert listener.address[1] > 0
    stream = await place.client.connect(*listener.address)
    accepted = await listener.accept()
    assert stream.remote_address == accepted.local_address
    assert stream.local_address == accepted.remote_address
    assert stream.remote_address[1] == listener.address[1]
    await send_all(stream, b"ping")
    stream.finish()
    assert await receive_all(accepted) == b"ping"
    await send_all(accepted, b"pong")
    accepted.close()
    assert await receive_all(stream) == b"pong"
    stream.close()
    listener.close()


@in_both_worlds
async def test_none_means_nothing_yet_and_zero_means_the_end(place: Place) -> None:
    stream, accepted = await place.connect()
    buffer = memoryview(bytearray(10))
    assert accepted.receive_into(buffer) is None
    stream.send([b"x"])
    await accepted.wait_readable()
    assert accepted.receive_into(buffer) == 1
    assert accepted.receive_into(buffer) is None
    stream.finish()
    await accepted.wait_readable()
    assert accepted.receive_into(buffer) == 0
    assert accepted.receive_into(buffer) == 0
    with pytest.raises(BrokenPipeError):
        stream.send([b"after the end"])
    stream.close()
    accepted.close()


@in_both_worlds
async def test_order_and_back_pressure(place: Place) -> None:
    """JEP-141: a megabyte in parts of many sizes arrives whole and in order."""
    stream, accepted = await place.connect()
    data = patterned(1_000_000)
    received = bytearray()

    async def send() -> None:
        position, size = 0, 1
        while position < len(data):
            end = min(position + size, len(data))
            middle = (position + end) // 2
            parts = [data[position:middle], memoryview(data)[middle:end], b""]
            sent = stream.send(parts, more=end < len(data))
            position += sent
            size = size * 3 % 100_003 or 1
            if not sent:
                await stream.wait_writable()
        stream.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while part := await receive(accepted, 30_000):
            received += part
    assert received == data
    stream.close()
    accepted.close()


@in_both_worlds
async def test_a_peer_that_does_not_read_stops_the_sender(place: Place) -> None:
    """JEP-141: back-pressure, and its end."""
    stream, accepted = await place.connect()
    total = await fill(stream)
    assert 0 < total < 50_000_000
    got = 0
    while got < total:
        got += len(await receive(accepted))
    await stream.wait_writable()
    assert stream.send([b"more"]) == 4
    stream.close()
    accepted.close()


@in_both_worlds
async def test_socket_options_bound_what_is_under_way(place: Place) -> None:
    small = SocketOptions(send_buffer_bytes=8_192, receive_buffer_bytes=8_192)
    listener = await place.world.network.listen(place.host, 0, options=small)
    stream = await place.client.connect(*listener.address, options=small)
    accepted = await listener.accept()
    # Linux doubles what it is asked for, and counts its own overhead.
    assert await fill(stream) < 300_000
    for end in (stream, accepted, listener):
        end.close()


@in_both_worlds
async def test_file_slices(place: Place) -> None:
    """Ranges of a file, with a part already sent, between ordinary bytes."""
    data = patterned(700_000)
    file = place.world.disk.open(f"{place.directory}/segment", write=True, create=True)
    file.pwrite([data], 0)
    stream, accepted = await place.connect()
    part = FileSlice(file, 1_000, 600_000)

    async def send() -> None:
        await send_all(accepted, b"<")
        skip = 10
        while skip < len(part):
            sent = accepted.send_slice(part, skip, more=True)
            assert sent <= 256 * 1024
            skip += sent
            if not sent:
                await accepted.wait_writable()
        await send_all(accepted, b">")
        accepted.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        assert await receive_all(stream) == b"<" + data[1_010:601_000] + b">"
    file.close()
    stream.close()
    accepted.close()


@in_both_worlds
async def test_a_slice_of_a_truncated_file_breaks_the_connection(place: Place) -> None:
    """Returning 0 instead would have the sender wait for ever."""
    file = place.world.disk.open(f"{place.directory}/short", write=True, create=True)
    file.pwrite([b"12345"], 0)
    stream, accepted = await place.connect()
    with pytest.raises(ConnectionAbortedError, match="short"):
        accepted.send_slice(FileSlice(file, 5, 10), 0)
    file.close()
    stream.close()
    accepted.close()


@in_both_worlds
async def test_close_still_delivers_what_was_handed_over(place: Place) -> None:
    stream, accepted = await place.connect()
    sent = stream.send([patterned(10_000)])
    stream.close()
    assert await receive_all(accepted) == patterned(10_000)[:sent]
    accepted.close()


@in_both_worlds
async def test_reset_is_seen_once_and_then_the_end(place: Place) -> None:
    """JEP-141: reset."""
    stream, accepted = await place.connect()
    stream.reset()
    await accepted.wait_readable()
    with pytest.raises(ConnectionResetError):
        accepted.receive_into(memoryview(bytearray(1)))
    assert accepted.receive_into(memoryview(bytearray(1))) == 0
    with pytest.raises(BrokenPipeError):
        accepted.send([b"x"])
    await accepted.wait_readable()
    await accepted.wait_writable()
    accepted.close()


@in_both_worlds
async def test_close_with_unread_bytes_resets_the_peer(place: Place) -> None:
    stream, accepted = await place.connect()
    stream.send([b"never read"])
    await accepted.wait_readable()
    accepted.close()
    await stream.wait_readable()
    with pytest.raises(ConnectionResetError):
        stream.receive_into(memoryview(bytearray(1)))
    stream.close()


@in_both_worlds
async def test_sending_to_a_closed_peer_fails_in_the_end(place: Place) -> None:
    stream, accepted = await place.connect()
    accepted.close()
    assert await receive(stream) == b""
    with pytest.raises(ConnectionError):  # noqa: PT012 (one of many sends meets it)
        while True:
            stream.send([b"anybody there?"])
            await trio.sleep(0.01)
    stream.close()


@in_both_worlds
async def test_a_closed_stream_refuses_everything_but_closing(place: Place) -> None:
    stream, accepted = await place.connect()
    stream.close()
    stream.close()
    stream.reset()
    with pytest.raises(trio.ClosedResourceError):
        stream.send([b"x"])
    with pytest.raises(trio.ClosedResourceError):
        stream.receive_into(memoryview(bytearray(1)))
    with pytest.raises(trio.ClosedResourceError):
        stream.finish()
    with pytest.raises(trio.ClosedResourceError):
        await stream.wait_readable()
    with pytest.raises(trio.ClosedResourceError):
        await stream.wait_writable()
    accepted.reset()
    accepted.reset()
    accepted.close()
    with pytest.raises(trio.ClosedResourceError):
        accepted.send([b"x"])


@in_both_worlds
async def test_closing_wakes_those_who_wait(place: Place) -> None:
    stream, accepted = await place.connect()
    listener = await place.world.network.listen(place.host, 0)
    await fill(stream)
    woken = []

    async def expect_closed(wait: str, end: object) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await getattr(end, wait)()
        woken.append(wait)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_closed, "wait_readable", stream)
        nursery.start_soon(expect_closed, "wait_writable", stream)
        nursery.start_soon(expect_closed, "accept", listener)
        await trio.sleep(0.05)
        stream.close()
        listener.close()
        listener.close()
    assert sorted(woken) == ["accept", "wait_readable", "wait_writable"]
    accepted.close()


@in_both_worlds
async def test_one_task_waits_at_a_time_and_a_cancelled_one_frees_the_place(place: Place) -> None:
    stream, accepted = await place.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.wait_readable)
        await trio.sleep(0.05)
        with pytest.raises(trio.BusyResourceError):
            await stream.wait_readable()
        nursery.cancel_scope.cancel()
    accepted.send([b"x"])
    assert await receive(stream) == b"x"
    stream.close()
    accepted.close()


@in_both_worlds
async def test_nobody_listens_means_refused(place: Place) -> None:
    """Decision 14: a refusal is evidence."""
    listener = await place.world.network.listen(place.host, 0)
    address = listener.address
    listener.close()
    with pytest.raises(ConnectionRefusedError, match=str(address[1])):
        await place.client.connect(*address)


@in_both_worlds
async def test_an_unknown_name_is_an_os_error_but_no_refusal(place: Place) -> None:
    with pytest.raises(OSError, match=r"no-such-host\.invalid") as caught:
        await place.client.connect("no-such-host.invalid", 9092)
    assert not isinstance(caught.value, ConnectionError)


@in_both_worlds
async def test_a_port_is_taken_until_its_listener_closes(place: Place) -> None:
    listener = await place.world.network.listen(place.host, 0)
    port = listener.address[1]
    with pytest.raises(OSError, match=f"{place.host}:{port}") as caught:
        await place.world.network.listen(place.host, port)
    assert caught.value.errno == errno.EADDRINUSE
    listener.close()
    again = await place.world.network.listen(place.host, port)
    assert again.address == listener.address
    again.close()


@in_both_worlds
async def test_an_address_of_others_cannot_be_bound(place: Place) -> None:
    with pytest.raises(OSError, match=r"192\.0\.2\.1:9092") as caught:
        await place.world.network.listen("192.0.2.1", 9092)
    assert caught.value.errno == errno.EADDRNOTAVAIL


@in_both_worlds
async def test_every_interface(place: Place) -> None:
    listener = await place.world.network.listen(None, 0)
    stream = await place.client.connect(place.host, listener.address[1])
    accepted = await listener.accept()
    await send_all(stream, b"x")
    assert await receive(accepted) == b"x"
    for end in (stream, accepted, listener):
        end.close()


@in_both_worlds
async def test_connections_queue_until_they_are_accepted(place: Place) -> None:
    listener = await place.world.network.listen(place.host, 0)
    streams = []
    for number in range(5):
        stream = await place.client.connect(*listener.address)
        await send_all(stream, bytes([number]))
        stream.finish()
        streams.append(stream)
    await trio.sleep(0.01)
    heard = []
    for _ in streams:
        accepted = await listener.accept()
        heard.append(await receive_all(accepted))
        accepted.close()
    assert sorted(heard) == [bytes([number]) for number in range(5)]
    for end in (*streams, listener):
        end.close()


@in_both_worlds
async def test_closing_a_listener_resets_those_who_were_not_accepted(place: Place) -> None:
    listener = await place.world.network.listen(place.host, 0)
    stream = await place.client.connect(*listener.address)
    await trio.sleep(0.05)
    listener.close()
    await stream.wait_readable()
    with pytest.raises(ConnectionResetError):
        stream.receive_into(memoryview(bytearray(1)))
    stream.close()


@in_both_worlds
async def test_connecting_can_be_cancelled(place: Place) -> None:
    listener = await place.world.network.listen(place.host, 0)
    with trio.move_on_after(0):
        await place.client.connect(*listener.address)
    stream: Stream = await place.client.connect(*listener.address)
    stream.close()
    listener.close()
