// Package page parses the documents in docs/ for the tests that check them. It returns their fenced
// blocks. The hidden comment in front of a block names the use of that block in a test.
//
// The package does not interpret these comments and does not run the blocks. Begin to read at
// Blocks.
//
// It is not for users and may change with any version.
package page

import (
	"regexp"
	"strings"
)

// Block is a fenced block of a page, with the marker on the line in front of it.
type Block struct {
	Language, Text, Marker string
	Line                   int // line of the page on which the block or its marker begins
	Start, End             int // byte offsets of the text in the page
}

var fenced = regexp.MustCompile("(?ms)^(?:<!-- ([^\n]*) -->\n)?```([a-z]*)\n(.*?)^```$")

// Blocks returns the fenced blocks of a page, in order.
func Blocks(page string) []Block {
	var out []Block
	for _, m := range fenced.FindAllStringSubmatchIndex(page, -1) {
		b := Block{Language: page[m[4]:m[5]], Text: page[m[6]:m[7]], Line: 1 + strings.Count(page[:m[0]], "\n"), Start: m[6], End: m[7]}
		if m[2] >= 0 {
			b.Marker = page[m[2]:m[3]]
		}
		out = append(out, b)
	}
	return out
}

var named = regexp.MustCompile(`^# (\S+\.yaml)\n`)

// File returns the file name on the first line of a YAML block.
func (b Block) File() (name string, ok bool) {
	if m := named.FindStringSubmatch(b.Text); m != nil && b.Language == "yaml" {
		return m[1], true
	}
	return "", false
}
