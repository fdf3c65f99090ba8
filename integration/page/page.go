// Package page reads the documents in docs/ for the tests that hold them right: their fenced
// blocks, each with the comment before it, which readers do not see and which says what a test
// does with the block.
//
// It does not own what the comments mean, nor what runs what a page shows.
//
// It is not for users and may change with any version.
package page

import (
	"regexp"
	"strings"
)

// Block is a fenced block of a page, with the marker in the line before it.
type Block struct {
	Language, Text, Marker string
	Line                   int // of the page; what begins it
	Start, End             int // of the text, in the page
}

var fenced = regexp.MustCompile("(?ms)^(?:<!-- ([^\n]*) -->\n)?```([a-z]*)\n(.*?)^```$")

// Blocks are those of a page, in their order.
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

// File is the name of the file that a block of YAML shows, which is in its first line.
func (b Block) File() (name string, ok bool) {
	if m := named.FindStringSubmatch(b.Text); m != nil && b.Language == "yaml" {
		return m[1], true
	}
	return "", false
}
