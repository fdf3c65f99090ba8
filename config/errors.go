package config

import (
	"fmt"
	"strings"
)

// Error is a refusal of a file: one line that says where, what, and what is allowed.
type Error struct {
	File  string // base name
	Line  int    // from 1; 0: the file as a whole
	Key   string // dotted path, such as dbs[1].mongo.endpoint; empty: the file as a whole
	Value string // redacted; empty when there is none to show
	Want  string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key)
		b.WriteString(": ")
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", e.Value)
	}
	b.WriteString(e.Want)
	return oneLine(b.String())
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
