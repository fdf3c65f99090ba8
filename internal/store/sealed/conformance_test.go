package sealed_test

import (
	"bytes"
	"testing"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/internal/store/recordtest"
	"dbcontroller.dev/internal/store/sealed"
	"dbcontroller.dev/record"
)

func keyOf(name string) sealed.Key {
	return sealed.Key{Name: name, Bytes: bytes.Repeat([]byte(name), sealed.KeySize/len(name))}
}

func keysOf(t testing.TB, active string, names ...string) *sealed.Keys {
	t.Helper()
	var all []sealed.Key
	for _, name := range names {
		all = append(all, keyOf(name))
	}
	k, err := sealed.NewKeys(active, all...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func fixedKeys(k *sealed.Keys) func() *sealed.Keys { return func() *sealed.Keys { return k } }

// TestConformance: who works through it sees the contract of package record, whether or not
// anything is encrypted.
func TestConformance(t *testing.T) {
	for name, encrypts := range map[string]bool{"without keys": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) {
			recordtest.Exercise(t, func(t *testing.T) recordtest.Backend {
				s := memstore.NewCluster(memstore.Options{}).Open("suite")
				b := recordtest.Backend{
					Namespace: s, Client: s, App: s.Foreign(),
					Reopen:      func() record.Namespace { return s.Cluster().Open("suite") },
					LoseHistory: func(*testing.T) { s.Cluster().LoseHistory() },
					Leftovers:   func(*testing.T) []string { return s.Names() },
				}
				if encrypts {
					return recordtest.Encrypted(t, b)
				}
				sealer := sealed.New("v1", fixedKeys(keysOf(t, "")), &recordtest.Notes{})
				b.Namespace, b.Client = sealer.Namespace(s), sealer.Client(s)
				b.NoLabels = true // they are the Sealer's own: a write that one refuses it makes again
				return b
			})
		})
	}
}
