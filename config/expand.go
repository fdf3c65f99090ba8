package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"dbcontroller.dev/internal/base/watchedfile"
)

// expand replaces variables in s. $(NAME) becomes the value of NAME. $(file:PATH) becomes the
// content of the file, without line ends at its end. $$ becomes $, and any other $ stays. Values
// are not expanded again, so a password may contain any character.
func expand(s string, env func(string) (string, bool), read FileReader) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		// Nothing left to expand; a $ at the end stands for itself.
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
		// The only way to write $( without a variable.
		case '$':
			b.WriteByte('$')
			s = s[2:]
		case '(':
			end := strings.IndexByte(s, ')')
			if end < 0 {
				return "", fmt.Errorf("want ) after $(, or $$( for a plain $(")
			}
			name := s[2:end]
			if path, ok := strings.CutPrefix(name, "file:"); ok {
				value, err := read(path)
				if err != nil {
					return "", err
				}
				b.WriteString(value)
				s = s[end+1:]
				continue
			}
			// A misspelt variable must not become part of a password.
			if !isVariable(name) {
				return "", fmt.Errorf("$(%s) is no variable: want letters, digits and _, file: and a path, or $$( for a plain $(", name)
			}
			value, ok := env(name)
			if !ok {
				return "", fmt.Errorf("variable %s is not set: set it in the environment", name)
			}
			b.WriteString(value)
			s = s[end+1:]
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

// FileReader returns the content of a secret's file.
type FileReader func(path string) (string, error)

func readSecret(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("$(file:%s): want a path from the root", path)
	}
	texts, err := watchedfile.Read("$(file:"+path+")", watchedfile.Secret(path))
	if err != nil {
		return "", err
	}
	return bare(texts[0]), nil
}

// bare returns the text of a file without the line ends at its end.
func bare(text []byte) string { return strings.TrimRight(string(text), "\r\n") }

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
