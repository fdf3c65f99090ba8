package config

import (
	"fmt"
	"strings"
)

// expand puts the values of variables in: $(NAME) is the value of NAME, $$ is a $, and
// any other $ stands for itself. Values are not looked into again, so that a password
// may hold anything.
func expand(s string, env func(string) (string, bool)) (string, error) {
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
			if !isVariable(name) {
				return "", fmt.Errorf("$(%s) is no variable: want letters, digits and _, or $$( for a plain $(", name)
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

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
