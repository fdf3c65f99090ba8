//go:build race

package lens

import "flag"

const raced = true

func init() {
	// The command line says otherwise where it says anything.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
}
