package sealed

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// Seal proves that a process with a configured key wrote a State. A login that may only write to
// the database cannot produce one.
type Seal struct {
	Key string `bson:"key"` // name of the key that the MAC key is derived from
	Sum []byte `bson:"sum"` // HMAC-SHA-256
}

// ErrState means that the State in the database is not accepted. It has no valid Seal, or it is
// older than a State that this process has seen. An operator must look.
var ErrState = fmt.Errorf("%w: the state of keys in the database's mark is refused", ErrKey)

// errOld is the ErrState for a State that is older than a known one, and weaker.
var errOld = fmt.Errorf("%w", ErrState)

// acceptVerb describes how to end an ErrState.
const acceptVerb = "somebody with write access to the database may have changed it: find out who, and if the state is right, accept it with 'dbcontroller keys accept'"

// newMAC derives the key that authenticates States. It has no other use, so a sum reveals nothing
// about the key of the records.
func newMAC(key []byte) ([]byte, error) {
	return hkdf.Key(sha256.New, key, nil, "state of keys 1 of dbcontroller", sha256.Size)
}

// sum returns the MAC of a State for one namespace of one deployment.
func (s State) sum(mac []byte, key, namespace string) ([]byte, error) {
	clear := map[string][]string{}
	for kind, fields := range s.Clear {
		if len(fields) > 0 { // databases do not distinguish nil from empty, so leave both out
			clear[kind] = fields
		}
	}
	// JSON sorts the keys of maps, so every process gets the same text.
	text, err := json.Marshal(struct {
		Namespace, SealKey, Key string
		Under                   map[string]string `json:",omitempty"`
		Whole                   bool
		Run                     string
		Strays                  []string `json:",omitempty"`
		Missed                  bool
		Clear                   map[string][]string `json:",omitempty"`
		Count                   uint64
	}{namespace, key, s.Key, s.Under, s.Whole, s.Run, s.Strays, s.Missed, clear, s.Count})
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, mac)
	h.Write(text)
	return h.Sum(nil), nil
}

// weak reports whether the State lets records be plain, or makes writers write plain records.
func (s State) weak() bool { return s.Key == Off || s.Key == "" || len(s.Under) == 0 || s.allows(Off) }

// maxCount is more than the number of writes of any real State.
const maxCount = 1 << 40

// sign sets the Seal with a key that every process needs anyway: the key that all write under. If
// writers do not encrypt, it uses the active key, or another one that is present.
func (s *State) sign(k *Keys, namespace string) error {
	s.Seal = nil
	if len(k.named) == 0 && !s.encrypts() {
		return nil // nothing is encrypted, and this process has no key to sign with
	}
	// Prefer keys that other processes have too.
	names := append([]string{s.Key, k.active}, s.InUse()...)
	if s.Key == Off || s.Key == "" {
		names = append(names, k.Names()...)
	} else {
		names = names[:1]
	}
	at := slices.IndexFunc(names, func(name string) bool { return k.named[name] != nil })
	if at < 0 {
		return fmt.Errorf("%w: key %s is missing from encryption.keys (%s): add its file", ErrKey, s.Key, k)
	}
	// The count makes an older signed State detectable (see fresh). Only a forged one is this high,
	// and the database could not store its successors.
	if s.Count > maxCount {
		s.Count = 0
	}
	s.Count++
	sum, err := s.sum(k.named[names[at]].mac, names[at], namespace)
	s.Seal = &Seal{Key: names[at], Sum: sum}
	return err
}

// trusted refuses a State without a valid Seal, if the configuration names an active key. With
// "active: off", or without keys, the configuration demands no encryption, so any State is enough.
func (s State) trusted(k *Keys, namespace string) error {
	if s.New || k.active == Off {
		return nil
	}
	if s.proven(k, namespace) {
		return nil
	}
	if err := s.lacks(k); err != nil {
		return err // this error says more about the remedy
	}
	switch {
	case s.Seal == nil && !s.encrypts():
		return fmt.Errorf("%w: it permits plain records, but no process with a key has signed it: set 'active: off' until a controller logs that it has signed, and then the key (docs/encryption.md); if records were encrypted before, %s", ErrState, acceptVerb)
	case s.Seal == nil:
		return fmt.Errorf("%w: it has no proof that a process with a key wrote it: %s", ErrState, acceptVerb)
	case k.named[s.Seal.Key] == nil:
		return fmt.Errorf("%w: its proof was made with key %s, which is missing from encryption.keys (%s): add the file of %s, or: %s", ErrState, s.Seal.Key, k, s.Seal.Key, acceptVerb)
	}
	return fmt.Errorf("%w: its proof with key %s is wrong, or this is another key with that name: %s", ErrState, s.Seal.Key, acceptVerb)
}

// proven reports whether the State has a Seal that is valid under a key of this process.
func (s State) proven(k *Keys, namespace string) bool {
	if s.Seal == nil || k.named[s.Seal.Key] == nil {
		return false
	}
	sum, err := s.sum(k.named[s.Seal.Key].mac, s.Seal.Key, namespace)
	return err == nil && hmac.Equal(sum, s.Seal.Sum)
}

// fresh refuses a State that is older than a State this process has seen, if it allows plain records
// or has writers use another key than the active one: somebody restored it. The other key may be a
// former one that leaked. An older State that demands the active key is no weaker than the
// configuration.
func (s State) fresh(k *Keys, seen uint64) error {
	if s.New || k.active == Off || s.Count >= seen {
		return nil
	}
	why := ""
	switch {
	case s.weak():
		why = "it permits plain records"
	case s.Key != k.active:
		why = "it has records written under key " + s.Key
	default:
		return nil
	}
	return fmt.Errorf("%w: %s and is of write %d, but this process has seen write %d: find out who put it back, and if it was restored on purpose, restart this process", errOld, why, s.Count, seen)
}
