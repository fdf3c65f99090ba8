package databases

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
)

// TestKeysThatWereThereAreKept: a key that is taken out of the configuration is held until the
// process ends, and is told of to nobody. Another one of its name, or none at all, is no reason to
// take what cannot be read.
func TestKeysThatWereThereAreKept(t *testing.T) {
	t.Parallel()
	key := func(name, of string) sealed.Key {
		return sealed.Key{Name: name, Bytes: bytes.Repeat([]byte(of), sealed.KeySize/len(of))}
	}
	a1, a2 := key("a001", "1"), key("a002", "2")
	holding := func(active string, before *held, keys ...sealed.Key) *held {
		t.Helper()
		h, err := hold(active, keys, before)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := holding("a001", nil, a1)
	notes := &recordtest.Notes{}
	s := sealed.New("v1", func() *sealed.Keys { return first.Keys }, notes)
	notes.Begin(t, s) // records are under a001
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		active string
		keys   []sealed.Key
		has    string // all that are held
		told   string
		suits  bool
	}{
		{"one is added", "a001", []sealed.Key{a1, a2}, "a001 a002", "a001 a002", true},
		{"the one in use is taken out", "a002", []sealed.Key{a2}, "a001 a002", "a002", true},
		{"it is another one", "a001", []sealed.Key{key("a001", "3")}, "a001", "a001", false},
		{"it has another name", "a003", []sealed.Key{key("a003", "1")}, "a003", "a003", false},
		{"all are taken out", "", nil, "", "", false},
	} {
		h := holding(tc.active, first, tc.keys...)
		if has, told := strings.Join(h.Names(), " "), strings.Join(h.configured.Names(), " "); has != tc.has || told != tc.told {
			t.Errorf("%s: it holds %q and tells of %q, want %q and %q", tc.name, has, told, tc.has, tc.told)
		}
		if err := s.Suits(h.Keys); (err == nil) != tc.suits || err != nil && !errors.Is(err, sealed.ErrKey) {
			t.Errorf("%s: %v, suits %t", tc.name, err, tc.suits)
		}
	}
	later := holding("a002", holding("a002", first, a2), a2)
	if has := strings.Join(later.Names(), " "); has != "a001 a002" {
		t.Errorf("after another change it holds %s", has)
	}
}
