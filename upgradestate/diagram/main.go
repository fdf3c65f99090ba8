// Command diagram writes docs/state-diagram.md from the machine itself: it explores what
// can be reached and draws what it found, so that the page cannot say anything else.
//
//	go run ./upgradestate/diagram > docs/state-diagram.md
package main

import (
	"fmt"
	"os"
)

func main() {
	page, err := Page()
	if err == nil {
		_, err = os.Stdout.WriteString(page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "diagram:", err)
		os.Exit(1)
	}
}
