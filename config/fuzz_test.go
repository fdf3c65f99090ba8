package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dbcontroller.dev/config"
)

// FuzzKeyFile: a file has a key of the size that one must have, which reads the same after it was
// written again, or an error that shows nothing of the file.
func FuzzKeyFile(f *testing.F) {
	f.Add(config.EncodeKey(make([]byte, 32)))
	f.Add([]byte("s3cret\r\n"))
	f.Add([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB=\n"))
	f.Add([]byte("0000000000000000000\n000000000000000000000000="))
	path := filepath.Join(f.TempDir(), "key")
	e := config.Encryption{Keys: []config.KeyFile{{Name: "a001", Path: path}}, Active: "a001"}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := e.Read()
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("error %q", err)
			}
			return
		}
		if len(keys) != 1 || len(keys[0]) != 32 || strings.TrimRight(string(text), "\r\n") != strings.TrimSpace(string(config.EncodeKey(keys[0]))) {
			t.Errorf("%q is the key %x", text, keys)
		}
	})
}
