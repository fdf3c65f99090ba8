package config

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/watchedfile"
)

// Encryption holds the keys that encrypt the managed kinds of a database.
type Encryption struct {
	Keys []KeyFile
	// Active is the name of the key for all records. EncryptionOff decrypts them. Empty: there are
	// no keys.
	Active string
}

// KeyFile is a key and the path of its file.
type KeyFile struct {
	Name string
	Path string
}

// EncryptionOff is the value of Encryption.Active for a database that must hold its records
// decrypted.
const EncryptionOff = "off"

const keyBytes = 32

var keyName = regexp.MustCompile(`^[A-Za-z0-9]{4}$`)

func (r *reader) encryption(n node) Encryption {
	// No section: the records are not encrypted.
	if n.value == nil {
		return Encryption{}
	}
	m := r.mapping(n, "keys", "active")
	var e Encryption
	var names []string
	items := r.list(m["keys"])
	for _, item := range items {
		k := r.mapping(item, "name", "file")
		key := KeyFile{Name: r.required(k["name"], "a name such as a001"), Path: filepath.FromSlash(r.required(k["file"], "the path of a file that 'dbcontroller keys new' made"))}
		if !keyName.MatchString(key.Name) {
			r.fail(k["name"], key.Name, "want four letters and digits of ASCII, such as a001")
		}
		// Each name needs its own key, because records store the name only.
		for i, other := range e.Keys {
			switch {
			case other.Name == key.Name:
				r.fail(k["name"], key.Name, fmt.Sprintf("%s in line %d has it already, want each name once", items[i].key, items[i].line))
			case other.Path == key.Path:
				r.fail(k["file"], key.Path, fmt.Sprintf("%s in line %d has it already, want a key for each name", items[i].key, items[i].line))
			}
		}
		e.Keys, names = append(e.Keys, key), append(names, key.Name)
	}
	if len(items) == 0 {
		r.fail(m["keys"], "", "missing, want a list with the name and the file of each key")
	}
	// Always explicit: a key that becomes active by accident encrypts all records.
	e.Active = r.required(m["active"], "the name of one of the keys, or "+EncryptionOff)
	if e.Active != EncryptionOff && !slices.Contains(names, e.Active) {
		r.fail(m["active"], e.Active, "want one of keys ("+strings.Join(names, ", ")+"), or "+EncryptionOff)
	}
	for i := range e.Keys {
		// Relative paths belong to the folder of the file.
		if !filepath.IsAbs(e.Keys[i].Path) {
			e.Keys[i].Path = filepath.Join(r.folder, e.Keys[i].Path)
		}
	}
	return e
}

// plainKinds refuses encryption for a version with fixed-name kinds, because their application
// could not read the records.
func (r *reader) plainKinds(dbs node, c Config) {
	for i, item := range r.list(dbs) {
		db := c.DBs[min(i, len(c.DBs)-1)]
		for _, k := range c.Kinds {
			// A kind with empty versions belongs to every version.
			if len(db.Encryption.Keys) > 0 && (k.Older == "" || k.Older == db.APIVersion || k.Newer == db.APIVersion) {
				n := r.mapping(item, dbKeys...)["encryption"]
				r.fail(n, "", "collections of kinds are read by their application, and never encrypted: want no such key for "+db.Version)
				return
			}
		}
	}
}

// Read returns the keys in the key files, in the order of Keys. A file that every user of the
// machine can access is an error. Errors quote no key.
func (e Encryption) Read() ([][]byte, error) {
	var keys [][]byte
	for _, k := range e.Keys {
		what := "encryption key " + k.Name
		// Whoever reads the key reads all records.
		if info, err := os.Stat(k.Path); err == nil && info.Mode().Perm()&0o007 != 0 {
			return nil, fmt.Errorf("%s: everybody on this machine can reach %s: chmod o-rwx it", what, k.Path)
		}
		texts, err := watchedfile.Read(what, watchedfile.Secret(k.Path))
		if err != nil {
			return nil, err
		}
		// Strict, so that a damaged key is not accepted as another one. The decoder would skip line breaks.
		text := bare(texts[0])
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(key) != keyBytes || strings.ContainsAny(text, "\r\n") { // err would quote the file
			return nil, fmt.Errorf("%s: %s holds no key: want %d bytes in base64 on one line, as 'dbcontroller keys new' writes it", what, k.Path, keyBytes)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// EncodeKey returns a key in the format of a key file: base64 on one line.
func EncodeKey(key []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(nil, key), '\n')
}

// WatchEncryption watches the configured keys of a version. Keys can thus be added, and another one
// activated, without a restart. made builds the value from the keys; its errors must not quote
// them.
func WatchEncryption[T any](c Config, version string, log *zap.Logger, made func(e Encryption, keys [][]byte) (T, error)) (*watchedfile.Value[T], error) {
	db, _ := c.DB(version)
	var files []watchedfile.File
	if c.Loaded {
		files = append(files, watchedfile.Public(c.Path))
	}
	return watchedfile.Open("encryption of "+version, log, func(texts [][]byte) (none T, err error) {
		e := db.Encryption
		if len(texts) > 0 {
			now, err := Parse(c.Path, texts[0], nil)
			// The old value stays in use after an error.
			if err != nil {
				return none, err
			}
			entry, ok := now.DB(version)
			if !ok {
				return none, fmt.Errorf("%s has no entry of %s any more: start the process anew", filepath.Base(c.Path), version)
			}
			e = entry.Encryption
		}
		keys, err := e.Read()
		if err != nil {
			return none, err
		}
		return made(e, keys)
	}, files...)
}
