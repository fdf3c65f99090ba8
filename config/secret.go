package config

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// Secret is a value that may contain a password, such as a connection string. Printing, formatting,
// logging and encoding show its redacted form. Reveal returns the value.
type Secret struct {
	value string
	whole bool // show nothing of it
}

// NewSecret wraps a value. Its redacted form shows the parts that are not secret.
func NewSecret(value string) Secret { return Secret{value: value} }

// NewKey wraps a value that is secret as a whole.
func NewKey(value string) Secret { return Secret{value: value, whole: value != ""} }

// Reveal returns the value itself, for the driver that connects with it.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether the value is empty.
func (s Secret) IsZero() bool { return s.value == "" }

// String returns the redacted form.
func (s Secret) String() string {
	if s.whole {
		return hidden
	}
	return Redact(s.value)
}

// Format writes the redacted form for every verb, so that %+v and %#v of a struct with a Secret are
// safe too.
func (s Secret) Format(f fmt.State, verb rune) {
	// %q and %#v would print the fields otherwise.
	if verb == 'q' || (verb == 'v' && f.Flag('#')) {
		_, _ = fmt.Fprintf(f, "%q", s.String())
		return
	}
	_, _ = io.WriteString(f, s.String())
}

// MarshalText returns the redacted form.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns the redacted form.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

var (
	_ fmt.Stringer   = Secret{}
	_ fmt.Formatter  = Secret{}
	_ json.Marshaler = Secret{}
)

const hidden = "***"

// Redact hides the secret parts of a connection string: the user info, and options with passwords
// or tokens. It accepts any text and rather hides too much. In text that is no proper URI,
// everything before the last @ may be a password.
func Redact(s string) string {
	scheme, rest := "", s
	if i := strings.Index(s, "://"); i >= 0 {
		scheme, rest = s[:i+3], s[i+3:]
	}
	// A password may contain an unescaped / or ?, so search the whole text for the last @.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = hidden + rest[i:]
		if strings.ContainsAny(strings.TrimSuffix(scheme, "://"), "@:/ ") {
			scheme = "" // then it is part of a password
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
		// An option that cannot be decoded may be a secret.
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
