// Command diagram writes docs/state-diagram.md from the machine itself. It explores the reachable
// states and draws its findings, so that the page cannot disagree with the code.
//
//	go run ./upgradestate/internal/diagram > docs/state-diagram.md
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
