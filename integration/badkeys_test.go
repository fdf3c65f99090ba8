package integration_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadInputOfKeys starts controllers whose keys cannot be right: they say why, and change
// nothing.
func TestBadInputOfKeys(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(config string) string
		make func(s *system) // after keys a001 and a002
		want []string
	}{
		{
			name: "active is not there", edit: replace("active: a001", "active: a009"),
			want: []string{"config.yaml:", "dbs[0].encryption.active", `"a009": want one of keys (a001, a002), or off`},
		},
		{
			name: "one name twice", edit: replace("name: a002", "name: a001"),
			want: []string{"config.yaml:", "dbs[0].encryption.keys[1].name", "want each name once"},
		},
		{
			name: "name that is none", edit: replace("name: a002", "name: a-02"),
			want: []string{"config.yaml:", `"a-02": want four letters and digits of ASCII`},
		},
		{
			name: "application's collections", edit: replace("kinds: []", "kinds: [{from: packages, to: packages, lens: packages.yaml}]"),
			want: []string{"dbs[0].encryption", "never encrypted", "want no such key for v1"},
		},
		{
			name: "no file", make: func(s *system) { _ = os.Remove(filepath.Join(s.dir, "a002.key")) },
			want: []string{"database of v1", "encryption key a002", "no such file"},
		},
		{
			name: "same key under two names", make: func(s *system) {
				text, err := os.ReadFile(filepath.Join(s.dir, "a001.key"))
				if err != nil {
					s.t.Fatal(err)
				}
				s.write("a002.key", string(text))
			},
			want: []string{"database of v1", "a001 and a002 are the same key", "dbcontroller keys new"},
		},
		{
			name: "file that is no key", make: func(s *system) { s.write("a002.key", secret) },
			want: []string{"encryption key a002", "holds no key", "want 32 bytes in base64"},
		},
		{
			name: "file for everybody", make: func(s *system) {
				if err := os.Chmod(filepath.Join(s.dir, "a001.key"), 0o644); err != nil {
					s.t.Fatal(err)
				}
			},
			want: []string{"encryption key a001", "chmod o-rwx it"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := newSystem(ctx, t, settings{kinds: "[]", encryption: map[string]string{"v1": keysSection("a001", "a001", "a002")}})
			s.makeKeys("a001", "a002")
			if tc.make != nil {
				tc.make(s)
			}
			if tc.edit != nil {
				s.edit(tc.edit)
			}
			s.refusesToRun(ctx, nil, tc.want...)
		})
	}
}

// TestMissingKeyIsRefused: who lacks the key of the records, or has another one of its name, opens
// nothing, and what lacks the keys of its configuration says which.
func TestMissingKeyIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{kinds: "[]", encryption: map[string]string{"v1": keysSection("a001", "a001"), "v2": keysSection("b001", "b001")}})
	s.makeKeys("a001", "b001", "a002")
	s.controller("controller", breakPoint{}).ready(ctx)
	s.controllers[0].kill()
	eventually(ctx, t, "what the killed controller has announced goes with its lease", func() error {
		kvs, _, err := s.etcd.List(ctx, s.record.Root()+"/controllerKeys/")
		if err == nil && len(kvs) > 0 {
			err = errors.New(kvs[0].Key + " is there")
		}
		return err
	})
	key, err := os.ReadFile(filepath.Join(s.dir, "a001.key"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		edit func(string) string
		key  string
		want []string
	}{
		"other keys": {func(text string) string { return strings.ReplaceAll(text, "a001", "a002") }, string(key), []string{"records are encrypted with key a001, which is missing from encryption.keys (a002): add the file of a001"}},
		"none at all": {func(text string) string {
			return strings.Replace(text, "  encryption: "+keysSection("a001", "a001")+"\n", "", 1)
		}, string(key), []string{"records are encrypted with key a001, which is missing from encryption.keys (there are none): add the file of a001"}},
		"other bytes":    {nil, "second", []string{"key a001 is another one here than the records were written with: correct the file of a001"}},
		"cannot be read": {nil, "", []string{"encryption key a001", "holds no key"}},
	} {
		s.write("config.yaml", string(config))
		if tc.key == "second" {
			s.makeKeys("a001")
		} else {
			s.write("a001.key", tc.key)
		}
		if tc.edit != nil {
			s.edit(tc.edit)
		}
		t.Log(name)
		s.refusesToRun(ctx, nil, append(tc.want, "database of v1")...)
	}
}
