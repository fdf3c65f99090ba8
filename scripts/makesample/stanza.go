package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// stanza is one package of the index: its fields in the order of the file.
type stanza []field

type field struct {
	name string
	// value joins its continuation lines by newlines, without the blanks that mark them.
	value string
}

func (s stanza) get(name string) string {
	for _, f := range s {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func (s stanza) name() string { return s.get("Package") }

// parseIndex reads stanzas separated by empty lines.
func parseIndex(r io.Reader) ([]stanza, error) {
	var all []stanza
	var current stanza
	finish := func() {
		if len(current) > 0 {
			all = append(all, current)
		}
		current = nil
	}
	lines := bufio.NewScanner(r)
	// Some packages list thousands of names in one line.
	lines.Buffer(nil, 16<<20)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		switch {
		case line == "":
			finish()
		case line[0] == ' ' || line[0] == '\t':
			if len(current) == 0 {
				return nil, fmt.Errorf("read index line %d: continues nothing", number)
			}
			last := &current[len(current)-1]
			last.value += "\n" + strings.TrimSpace(line)
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return nil, fmt.Errorf("read index line %d: no field name", number)
			}
			current = append(current, field{name: name, value: strings.TrimSpace(value)})
		}
	}
	// The last stanza may lack the empty line.
	finish()
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	return all, nil
}
