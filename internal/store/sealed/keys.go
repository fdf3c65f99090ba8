package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/aead/xaesgcm"
	"github.com/tink-crypto/tink-go/v2/insecuresecretdataaccess"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/secretdata"
	"github.com/tink-crypto/tink-go/v2/tink"

	"dbcontroller.dev/record"
)

const (
	// KeySize is the size of a key in bytes.
	KeySize = 32
	// nameSize is the length of a key's name in characters. It is fixed, so that an envelope needs
	// no length field for the name.
	nameSize = 4
	// Off means no key: writers do not encrypt. No key can have this name.
	Off = "off"
)

// CheckName refuses invalid key names.
func CheckName(name string) error {
	ok := len(name) == nameSize
	for _, c := range []byte(name) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("want a name of %d letters and digits of ASCII, such as a001", nameSize)
	}
	return nil
}

// Key is one configured key.
type Key struct {
	Name  string
	Bytes []byte
}

// Keys holds the keys that a process has for a namespace. It is immutable.
type Keys struct {
	active string
	named  map[string]*sealing
}

// sealing is a key in use.
type sealing struct {
	aead  tink.AEAD
	mac   []byte // key that authenticates States
	check string // tells the key from others of the same name
}

// NewKeys returns a set of keys. Records are to be brought under the active one; Off: under none.
// Without keys, active may be empty and means Off.
func NewKeys(active string, keys ...Key) (*Keys, error) {
	k := &Keys{active: active, named: map[string]*sealing{}}
	held := map[string]string{} // by bytes
	for _, key := range keys {
		if err := CheckName(key.Name); err != nil {
			return nil, fmt.Errorf("key %q: %w", key.Name, err)
		}
		if k.named[key.Name] != nil {
			return nil, fmt.Errorf("two keys have the name %s", key.Name)
		}
		// A rotation between two names of one key would protect nothing.
		if other := held[string(key.Bytes)]; other != "" {
			return nil, fmt.Errorf("%s and %s are the same key: create another one with 'dbcontroller keys new'", other, key.Name)
		}
		if len(key.Bytes) != KeySize {
			return nil, fmt.Errorf("key %s has %d bytes, want %d", key.Name, len(key.Bytes), KeySize)
		}
		a, err := newAEAD(key.Bytes)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key.Name, err)
		}
		mac, err := newMAC(key.Bytes)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key.Name, err)
		}
		held[string(key.Bytes)] = key.Name
		k.named[key.Name] = &sealing{aead: a, mac: mac, check: checkOf(key.Bytes)}
	}
	switch {
	case len(keys) == 0 && active == "":
		k.active = Off
	case active != Off && k.named[active] == nil:
		return nil, fmt.Errorf("the active key %s is not one of the keys (%s)", active, k)
	}
	return k, nil
}

// newAEAD returns XAES-256-GCM with the key. A sealed text has 24 random bytes, the ciphertext and
// its tag.
func newAEAD(key []byte) (tink.AEAD, error) {
	const salt = 12 // the specification demands this size, beside a nonce of 12 bytes
	params, err := xaesgcm.NewParameters(xaesgcm.VariantNoPrefix, salt)
	if err != nil {
		return nil, err
	}
	made, err := xaesgcm.NewKey(secretdata.NewBytesFromData(key, insecuresecretdataaccess.Token{}), 0, params)
	if err != nil {
		return nil, err
	}
	// The library makes a cipher only from a key set.
	m := keyset.NewManager()
	id, err := m.AddKey(made)
	if err != nil {
		return nil, err
	}
	if err := m.SetPrimary(id); err != nil {
		return nil, err
	}
	h, err := m.Handle()
	if err != nil {
		return nil, err
	}
	return aead.New(h)
}

// checkOf returns a short digest that tells a key from others of its name. It reveals nothing about
// the key.
func checkOf(key []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("dbcontroller key check 1"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Active returns the key that records are to be brought under, or Off.
func (k *Keys) Active() string { return k.active }

// Names returns the names of all keys, sorted.
func (k *Keys) Names() []string { return slices.Sorted(maps.Keys(k.named)) }

// Checked returns all keys in the form of Check, sorted by name.
func (k *Keys) Checked() []string {
	var out []string
	for _, name := range k.Names() {
		out = append(out, k.Check(name))
	}
	return out
}

// Check returns the name of a key with a digest that tells it from others of its name, such as
// a001:0123456789abcdef. It returns "" for an unknown key.
func (k *Keys) Check(name string) string {
	if has := k.named[name]; has != nil {
		return name + ":" + has.check
	}
	return ""
}

// String returns the names of the keys and never their bytes.
func (k *Keys) String() string {
	if len(k.named) == 0 {
		return "there are none"
	}
	return strings.Join(k.Names(), ", ")
}

// GoString returns String, so that %#v cannot print key bytes.
func (k *Keys) GoString() string { return k.String() }

var (
	// ErrKey means that a record, or the namespace, is under a key that this process lacks or has
	// with other bytes. Configure the key.
	ErrKey = record.ErrNoKey
	// ErrTampered means that the stored bytes differ from those written under the key: somebody
	// without the key changed or moved them. An operator must look.
	ErrTampered = fmt.Errorf("%w: it differs from the written document", record.ErrUnreadable)
)
