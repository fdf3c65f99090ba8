// Package printable quotes text that others have chosen, before a terminal shows it. Users of a service
// choose keys of records, ids and names, and a database login can choose more. A terminal takes some
// characters for a command or for the end of a line. In Go's quoted form they cannot forge output.
//
// Begin to read at Line.
//
// It is not for users and may change with any version.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line quotes the characters of s that are not printable on one line.
func Line(s string) string {
	if !strings.ContainsFunc(s, Bad) {
		return s
	}
	return quote(s, Bad)
}

// Lines is Line for a text with lines and columns of its own: it keeps newlines and tabs.
func Lines(s string) string {
	return quote(s, func(r rune) bool { return r != '\n' && r != '\t' && Bad(r) })
}

// Bad reports whether a character is not printable. These include marks that change the direction of
// text, and invalid UTF-8.
func Bad(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

func quote(s string, bad func(rune) bool) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case !bad(r):
			b.WriteRune(r)
		// An invalid byte decodes to RuneError as well. Print the byte itself, not U+FFFD.
		case r == utf8.RuneError && s[i] != "\uFFFD"[0]:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// JSON escapes characters that JSON allows and a terminal obeys. The JSON value stays the same, since
// such characters occur only within strings.
func JSON(s string) string {
	// Most texts are ASCII, whose other control characters JSON escapes by itself.
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x7f }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x7f || !Bad(r):
			b.WriteRune(r)
		// JSON escapes characters beyond 16 bits as surrogate pairs.
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
