// The Go twin of c/knob.c: says the knob's value for each line.
package main

import (
	"bufio"
	"fmt"
	"os"

	"fettle.dev/sensor"
)

var knob = sensor.NewKnob("test.knob", 3, 1, 1, -2, 5)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(knob.Get())
	}
}
