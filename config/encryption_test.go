package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/config"
)

const encrypted = `deployment: services/bbs.example.com/deployments/us-west2
dbs:
- namespace: envs/bbs/v1
  backend: mongo
  apiVersion: v1
  mongo: {endpoint: "mongodb://db"}
  encryption:
    keys:
    - {name: a001, file: keys/a001}
    - {name: B2c3, file: /keys/b}
    active: a001
- {namespace: envs/bbs/v2, backend: mongo, apiVersion: v2, mongo: {endpoint: "mongodb://db"}}
`

func TestEncryption(t *testing.T) {
	t.Parallel()
	cfg, err := config.Parse("/etc/dbc/bbs.yaml", []byte(encrypted), env)
	if err != nil {
		t.Fatal(err)
	}
	e := cfg.DBs[0].Encryption
	if e.Active != "a001" || len(e.Keys) != 2 || e.Keys[0] != (config.KeyFile{Name: "a001", Path: "/etc/dbc/keys/a001"}) || e.Keys[1].Path != "/keys/b" {
		t.Errorf("%+v", e)
	}
	if e := cfg.DBs[1].Encryption; e.Active != "" || e.Keys != nil {
		t.Errorf("without: %+v", e)
	}
}

func TestEncryptionRefusals(t *testing.T) {
	t.Parallel()
	const kinds = "kinds: [{from: a, to: a, lens: l.yaml}]\ndbs:"
	for _, tc := range []struct{ name, old, new, want string }{
		{"active is not there", "active: a001", "active: a009", `bbs.yaml:11: dbs[0].encryption.active: "a009": want one of keys (a001, B2c3), or off`},
		{"active in another case", "active: a001", "active: b2c3", `bbs.yaml:11: dbs[0].encryption.active: "b2c3": want one of keys (a001, B2c3), or off`},
		{"no active", "    active: a001\n", "", `bbs.yaml:7: dbs[0].encryption.active: missing, want the name of one of the keys, or off`},
		{"no keys", "    keys:\n    - {name: a001, file: keys/a001}\n    - {name: B2c3, file: /keys/b}\n", "", `bbs.yaml:7: dbs[0].encryption.keys: missing, want a list with the name and the file of each key`},
		{"one name twice", "name: B2c3", "name: a001", `bbs.yaml:10: dbs[0].encryption.keys[1].name: "a001": dbs[0].encryption.keys[0] in line 9 has it already, want each name once`},
		{"one file twice", "file: /keys/b", "file: keys/a001", `bbs.yaml:10: dbs[0].encryption.keys[1].file: "keys/a001": dbs[0].encryption.keys[0] in line 9 has it already, want a key for each name`},
		{"short name", "name: B2c3", "name: a1", `bbs.yaml:10: dbs[0].encryption.keys[1].name: "a1": want four letters and digits of ASCII, such as a001`},
		{"long name", "name: B2c3", "name: a0012", `bbs.yaml:10: dbs[0].encryption.keys[1].name: "a0012": want four letters and digits of ASCII, such as a001`},
		{"signs in a name", "name: B2c3", "name: a-01", `bbs.yaml:10: dbs[0].encryption.keys[1].name: "a-01": want four letters and digits of ASCII, such as a001`},
		{"letters of another alphabet", "name: B2c3", "name: aé1", `bbs.yaml:10: dbs[0].encryption.keys[1].name: "aé1": want four letters and digits of ASCII, such as a001`},
		{"no file", ", file: /keys/b", "", `bbs.yaml:10: dbs[0].encryption.keys[1].file: missing, want the path of a file that 'dbcontroller keys new' made`},
		{"unknown key", "active: a001", "current: a001", `bbs.yaml:11: dbs[0].encryption.current: unknown key, want one of keys, active`},
		{"key in the file", "file: /keys/b", "key: c2VjcmV0", `bbs.yaml:10: dbs[0].encryption.keys[1].key: unknown key, want one of name, file`},
		{"an application's collections", "dbs:", kinds, `bbs.yaml:8: dbs[0].encryption: collections of kinds are read by their application, and never encrypted: want no such key for v1`},
	} {
		text := strings.Replace(encrypted, tc.old, tc.new, 1)
		_, err := config.Parse("bbs.yaml", []byte(text), env)
		if text == encrypted || err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

// TestKeyFiles: what is no key, or not for this process alone, is refused, and not shown.
func TestKeyFiles(t *testing.T) {
	t.Parallel()
	good := config.EncodeKey(bytes.Repeat([]byte{7}, 32))
	for _, tc := range []struct {
		name string
		text []byte
		mode os.FileMode
		want string // empty: it is taken
	}{
		{"as keys new writes it", good, 0o600, ""},
		{"of a group", good, 0o440, ""},
		{"for everybody to read", good, 0o644, "chmod o-rwx it"},
		{"for its group to write", good, 0o660, "chmod go-w it"},
		{"empty", nil, 0o600, "holds no key: want 32 bytes in base64"},
		{"bytes as they are", bytes.Repeat([]byte("secret42"), 4), 0o600, "holds no key"},
		{"too short", config.EncodeKey([]byte("secret42")), 0o600, "holds no key"},
		{"too long", config.EncodeKey(make([]byte, 33)), 0o600, "holds no key"},
		{"on two lines", []byte("0000000000000000000\n000000000000000000000000=\n"), 0o600, "holds no key"},
		{"two keys", append(bytes.Clone(good), good...), 0o600, "holds no key"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, tc.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		_, err := config.Encryption{Keys: []config.KeyFile{{Name: "a001", Path: path}}, Active: "a001"}.Read()
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "a001")):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret42") {
			t.Errorf("%s: it shows the file: %v", tc.name, err)
		}
	}
}

// TestEncryptionIsReadAgain: a key is added and made active without a restart, and a slip
// leaves what was.
func TestEncryptionIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "bbs.yaml")
		write := func(name string, text []byte) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.Replace(encrypted, "    - {name: B2c3, file: /keys/b}\n", "", 1)
		write("bbs.yaml", []byte(text))
		if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
			t.Fatal(err)
		}
		write("keys/a001", config.EncodeKey(make([]byte, 32)))
		cfg, err := config.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := config.WatchEncryption(cfg, "v1", nil, func(e config.Encryption, keys [][]byte) (string, error) { return e.Active, nil })
		if err != nil {
			t.Fatal(err)
		}
		added := strings.Replace(encrypted, "/keys/b", "keys/b", 1)
		write("bbs.yaml", []byte(strings.Replace(added, "active: a001", "active: B2c3", 1)))
		time.Sleep(2 * time.Second)
		if got := v.Get(); got != "a001" {
			t.Errorf("active is %s, and its file is not there", got)
		}
		write("keys/b", config.EncodeKey(bytes.Repeat([]byte{1}, 32)))
		time.Sleep(2 * time.Second)
		if got := v.Get(); got != "B2c3" {
			t.Errorf("active is %s, want B2c3", got)
		}
		write("bbs.yaml", []byte("dbs: [slip]\n"))
		time.Sleep(2 * time.Second)
		if got := v.Get(); got != "B2c3" {
			t.Errorf("after a slip active is %s", got)
		}
	})
}
