package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"dbcontroller.dev/watchedfile"
)

// expand puts the values of variables in: $(NAME) is the value of NAME, $(file:PATH) what
// the file holds but for the ends of its last line, $$ is a $, and any other $ stands for
// itself. Values are not looked into again, so that a password
// may hold anything.
func expand(s string, env func(string) (string, bool), read FileReader) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch s[1] {
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

// FileReader returns what a file of a secret holds.
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

// bare is the text of a file without the ends of its last line.
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
