package config

import (
	"fmt"
	"strings"
)

// Error is the refusal of a file, as one line with the place, the value and the allowed values.
type Error struct {
	File  string // base name
	Line  int    // from 1; 0: the whole file
	Key   string // dotted path, such as dbs[1].mongo.endpoint; empty: the whole file
	Value string // redacted; empty: none to show
	Want  string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	// Leave out empty parts: an error can be about the whole file.
	if e.Key != "" {
		b.WriteString(e.Key)
		b.WriteString(": ")
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", e.Value)
	}
	b.WriteString(e.Want)
	// A value may contain line breaks, and the message is one line.
	return oneLine(b.String())
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
