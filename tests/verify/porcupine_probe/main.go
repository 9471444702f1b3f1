// Judges histories of one register with porcupine. Each line of the input is a JSON list of calls
// [start, end, kind, argument, expected, ok], where kind is "read", "write" or "cas"; the answer is
// a line "true" or "false" for each. A call without an end has one beyond all others and the answer
// of an operation that may have happened or not.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/anishathalye/porcupine"
)

type call struct {
	Start    int64  `json:"start"`
	End      int64  `json:"end"`
	Kind     string `json:"kind"`
	Value    int    `json:"value"`
	Expected int    `json:"expected"`
	Unknown  bool   `json:"unknown"`
	Swapped  bool   `json:"swapped"`
}

var model = porcupine.Model{
	Init: func() interface{} { return 0 },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		value, in := state.(int), input.(call)
		switch in.Kind {
		case "read":
			return in.Value == value, value
		case "write":
			return true, in.Value
		}
		if in.Unknown {
			if value == in.Expected {
				return true, in.Value
			}
			return true, value
		}
		if in.Swapped {
			return value == in.Expected, in.Value
		}
		return value != in.Expected, value
	},
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	for lines.Scan() {
		var calls []call
		if err := json.Unmarshal(lines.Bytes(), &calls); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		operations := make([]porcupine.Operation, len(calls))
		for number, one := range calls {
			operations[number] = porcupine.Operation{
				ClientId: number, Input: one, Call: one.Start, Output: 0, Return: one.End,
			}
		}
		fmt.Println(porcupine.CheckOperations(model, operations))
	}
}
