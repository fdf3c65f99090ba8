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
	// KeySize is how many bytes a key has.
	KeySize = 32
	// nameSize is how many characters the name of a key has, so that an envelope needs no
	// length of it.
	nameSize = 4
	// Off stands for no key: what is written is not encrypted. No key can have this name.
	Off = "off"
)

// CheckName refuses what is no name of a key.
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

// Key is a key as a configuration has it.
type Key struct {
	Name  string
	Bytes []byte
}

// Keys are the keys that a process has for a namespace. They do not change.
type Keys struct {
	active string
	named  map[string]*sealing
}

// sealing is a key in use.
type sealing struct {
	aead  tink.AEAD
	mac   []byte // what a State is authenticated with
	check string
}

// NewKeys makes a set of keys, of which records are to be brought under the active one; Off: under
// none. Without keys active may be empty.
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
		if other := held[string(key.Bytes)]; other != "" {
			return nil, fmt.Errorf("%s and %s are the same key: make another one with 'dbcontroller keys new'", other, key.Name)
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

// newAEAD is XAES-256-GCM under a key: 24 random bytes, the ciphertext and its tag.
func newAEAD(key []byte) (tink.AEAD, error) {
	const salt = 12 // with 12 bytes of nonce, as the specification has it
	params, err := xaesgcm.NewParameters(xaesgcm.VariantNoPrefix, salt)
	if err != nil {
		return nil, err
	}
	made, err := xaesgcm.NewKey(secretdata.NewBytesFromData(key, insecuresecretdataaccess.Token{}), 0, params)
	if err != nil {
		return nil, err
	}
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

// checkOf distinguishes a key from others of its name, and reveals nothing about it.
func checkOf(key []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("dbcontroller key check 1"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Active is the key that records are to be brought under, or Off.
func (k *Keys) Active() string { return k.active }

// Names are those of all keys, in order.
func (k *Keys) Names() []string { return slices.Sorted(maps.Keys(k.named)) }

// Checked are the names of all keys, in order, each with what distinguishes it from others of its
// name: a001:0123456789abcdef.
func (k *Keys) Checked() []string {
	var out []string
	for _, name := range k.Names() {
		out = append(out, k.Check(name))
	}
	return out
}

// Check is one of Checked; empty where there is no such key.
func (k *Keys) Check(name string) string {
	if has := k.named[name]; has != nil {
		return name + ":" + has.check
	}
	return ""
}

// String has the names alone.
func (k *Keys) String() string {
	if len(k.named) == 0 {
		return "there are none"
	}
	return strings.Join(k.Names(), ", ")
}

// GoString has no more than String: %#v must not print keys.
func (k *Keys) GoString() string { return k.String() }

var (
	// ErrKey: a record, or the namespace, is under a key that this process does not have, or has
	// with other bytes. Configure the key.
	ErrKey = record.ErrNoKey
	// ErrTampered: what is stored is not what was written under that key: it was changed or
	// moved by somebody who has no key. A person must look.
	ErrTampered = fmt.Errorf("%w: it is not what was written", record.ErrUnreadable)
)
