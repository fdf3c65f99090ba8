package config

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Secret is a value that may carry a password, such as a connection string. Printed,
// formatted, logged or encoded it shows its redacted form; Reveal gives the value.
type Secret struct {
	value string
	whole bool // nothing of it is shown
}

// NewSecret wraps a value, of which what is no secret may be shown.
func NewSecret(value string) Secret { return Secret{value: value} }

// NewKey wraps a value that is secret as a whole.
func NewKey(value string) Secret { return Secret{value: value, whole: value != ""} }

// Reveal returns the value itself, for the driver that connects with it.
func (s Secret) Reveal() string { return s.value }

// IsZero reports an empty value.
func (s Secret) IsZero() bool { return s.value == "" }

// String is the redacted form.
func (s Secret) String() string {
	if s.whole {
		return hidden
	}
	return Redact(s.value)
}

// Format redacts whatever the verb: a struct with a Secret in it is printed with %+v
// and %#v, too.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' || (verb == 'v' && f.Flag('#')) {
		_, _ = fmt.Fprintf(f, "%q", s.String())
		return
	}
	_, _ = io.WriteString(f, s.String())
}

// MarshalText is the redacted form.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON is the redacted form.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

var (
	_ fmt.Stringer   = Secret{}
	_ fmt.Formatter  = Secret{}
	_ json.Marshaler = Secret{}
)

const hidden = "***"

// Redact hides what a connection string may keep secret: the user info, and options
// that hold passwords or tokens. It takes any text, and rather hides too much: what
// stands before the last @ of something that is no proper URI may be a password.
func Redact(s string) string {
	scheme, rest := "", s
	if i := strings.Index(s, "://"); i >= 0 {
		scheme, rest = s[:i+3], s[i+3:]
	}
	// A password may hold an unescaped / or ?, so the last @ of the whole text counts.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = hidden + rest[i:]
		if strings.ContainsAny(strings.TrimSuffix(scheme, "://"), "@:/ ") {
			scheme = "" // part of a password, then
		}
	}
	if i := strings.IndexByte(rest, '?'); i >= 0 {
		rest = rest[:i+1] + redactOptions(rest[i+1:])
	}
	return scheme + rest
}

func redactOptions(options string) string {
	parts := strings.Split(options, "&")
	for i, p := range parts {
		name, _, ok := strings.Cut(p, "=")
		if !ok {
			continue
		}
		if plain, err := url.QueryUnescape(name); err != nil || secretOption(plain) {
			parts[i] = name + "=" + hidden
		}
	}
	return strings.Join(parts, "&")
}

func secretOption(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"password", "passwd", "secret", "token", "authmechanismproperties"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
