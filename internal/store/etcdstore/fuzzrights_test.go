package etcdstore

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dbcontroller.dev/record"
)

// FuzzRights: a note of an application's permissions gives rights to its own keys alone, or is an
// error. Whoever writes records can write the note, and a controller has the role root.
func FuzzRights(f *testing.F) {
	const prefix = "/app/"
	for _, note := range []string{
		`[{"role":"orders","from":"/app/","to":"/app0","type":2},{"role":"orders","from":"/app/x","type":1}]`,
		`[{"role":"mallory","from":"/other/","to":"/other0","type":2}]`,
		`[{"role":"mallory","from":"/app/","to":"\u0000","type":2}]`,
		`[{"role":"mallory","from":"/app/","to":"/b","type":2}]`,
		`[{"role":"mallory","from":"/app0","type":2},{"role":"mallory","from":"","to":"/app0","type":2}]`,
		`{"role":1}`, `null`, ``,
	} {
		f.Add(note, "/other/x")
		f.Add(note, "/app0")
	}
	s := &Store{at: "/dbc/", fixed: map[string]Keys{"orders": {Prefix: prefix, Format: JSON}}}
	f.Fuzz(func(t *testing.T, note, key string) {
		if note == "" {
			return // the note is in etcd then
		}
		fence := record.Fence{Token: record.Token{Kind: "orders", ID: "i", Name: "orders", Fixed: true}, To: "orders.n1", Restore: note}
		gs, err := s.grants(t.Context(), fence)
		if err != nil {
			if len(gs) > 0 {
				t.Errorf("%q gives %v with %v", note, gs, err)
			}
			return
		}
		for _, g := range gs {
			for _, other := range []string{key, g.From, g.To, clientv3.GetPrefixRangeEnd(prefix), ""} {
				if reaches(g, other) && !strings.HasPrefix(other, prefix) {
					t.Errorf("%q gives role %q rights to %q", note, g.Role, other)
				}
			}
		}
		// A scratch collection has no keys, whatever its fence says.
		fence.Token.Name = sweepable + "x"
		if gs, err := s.grants(t.Context(), fence); len(gs) > 0 || err != nil {
			t.Errorf("a scratch collection has %v, %v", gs, err)
		}
	})
}

// reaches reports whether etcd lets a role with that grant write a key.
func reaches(g grant, key string) bool {
	switch g.To {
	case "":
		return key == g.From
	case "\x00":
		return key >= g.From
	default:
		return key >= g.From && key < g.To
	}
}
