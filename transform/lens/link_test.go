package lens_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// TestRevisionStays: controllers of two releases compare the revisions of one lens.
func TestRevisionStays(t *testing.T) {
	t.Parallel()
	const teams = "key: {from: 'teams/{team}', to: 'orgs/{org}/teams/{team}', with: {org: {field: o.org}}}\noperations: []\n"
	lenses, err := lenstest.Link(t, map[string]string{"teams": teams, "users": lenstest.Users, "bills": "operations:\n  - reference: {field: owner, kind: users}\n  - reference: {field: team, kind: teams, with: {org: {field: org}}}\n"})
	if err != nil {
		t.Fatal(err)
	}
	if got := lenses["bills"].Spec("bills", "bills").Revision; got != "lens 5acb74592573045f044161d53b89f0a946d9cbed2b3b4e98d1903f63ecc6705f references 98b1233d240840fe" {
		t.Errorf("revision %q", got)
	}
}

func TestReference(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, operation, old, now, err string }{
		{"key", "reference: {field: owner, kind: users}", `{"_id":1,"owner":"users/ann","x":1}`, `{"_id":1,"owner":"orgs/acme/users/ann","x":1}`, ""},
		{"absent and null", "reference: {field: owner, kind: users}", `{"_id":1,"x":{"owner":null}}`, `{"_id":1,"x":{"owner":null}}`, ""},
		{"list", "reference: {field: o.owners, kind: users, list: true}", `{"_id":1,"o":{"owners":["users/ann","users/bob"]}}`, `{"_id":1,"o":{"owners":["orgs/acme/users/ann","orgs/acme/users/bob"]}}`, ""},
		{"within items", "each: {field: rows, operations: [{reference: {field: owner, kind: users}}]}", `{"_id":1,"rows":[{"owner":"users/ann"},{}]}`, `{"_id":1,"rows":[{"owner":"orgs/acme/users/ann"},{}]}`, ""},
		{"items", "each: {field: owners, operations: [{reference: {field: ., kind: users}}]}", `{"_id":1,"owners":["users/ann"]}`, `{"_id":1,"owners":["orgs/acme/users/ann"]}`, ""},
		{"kind without key change", "reference: {field: other, kind: others}", `{"_id":1,"other":7}`, `{"_id":1,"other":7}`, ""},
		{"optional", "reference: {field: owner, kind: users, optional: true}", `{"_id":1,"owner":"system"}`, `{"_id":1,"owner":"system"}`, ""},
		{"optional, another type", "reference: {field: owner, kind: users, optional: true}", `{"_id":1,"owner":5}`, `{"_id":1,"owner":5}`, ""},
		{"in a record of fanOut", `fanOut: {field: rows, as: list, kind: rows, key: "{_key}/{index}", operations: [{reference: {field: owner, kind: users}}]}`, `{"_id":"1","rows":[{"owner":"users/ann"}]}`, "", ""},
		{"no key of the kind", "reference: {field: owner, kind: users}", `{"_id":1,"owner":"ann"}`, "", `owner is no key of users: "ann" is not of the form users/{user}`},
		{"of the other version", "reference: {field: owner, kind: users, optional: true}", `{"_id":1,"owner":"orgs/acme/users/ann"}`, "", "the reverse would change it"},
		{"number", "reference: {field: owner, kind: users}", `{"_id":1,"owner":5}`, "", "(int), not a key of users"},
		{"list without list", "reference: {field: owners, kind: users}", `{"_id":1,"owners":["users/ann"]}`, "", "(list), not a key of users"},
		{"no list", "reference: {field: owners, kind: users, list: true}", `{"_id":1,"owners":"users/ann"}`, "", "not a list of keys"},
		{"in the list", "reference: {field: owners, kind: users, list: true}", `{"_id":1,"owners":["users/ann","x"]}`, "", "owners.1 is no key of users"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			lenstest.CheckOf(t, map[string]string{"users": lenstest.Users, "others": "operations: []"}, tc.operation, tc.old, tc.now, tc.err)
		})
	}
}

// TestReferenceLaws: a field that also holds the record's own name.
func TestReferenceLaws(t *testing.T) {
	t.Parallel()
	l := lenstest.Parse(t, strings.Replace(lenstest.Secrets, "operations:", "operations:\n  - reference: {field: name, kind: self}\n  - reference: {field: also, kind: old, optional: true}", 1))
	name := rapid.SampledFrom([]string{"s", "t", "ü"})
	group := func(kind, prefix string) func(t *rapid.T) []record.Record {
		return func(t *rapid.T) []record.Record {
			id := prefix + name.Draw(t, "name")
			d := bson.D{{Key: "_id", Value: id}}
			return []record.Record{lenstest.Record(t, kind, lenstest.Maybe(t, lenstest.Maybe(t, d, "name", id, nil), "also", prefix+"x", "foreign", 5))}
		}
	}
	lenstest.Laws(t, l, false, false, group("old", "projects/p/secrets/"), group("new", "projects/p/regions/us-west2/secrets/"))
}

func TestLinkErrors(t *testing.T) {
	t.Parallel()
	ref := func(kind string) string { return "operations:\n  - reference: {field: f, kind: " + kind + "}\n" }
	for _, tc := range []struct {
		name  string
		texts map[string]string
		want  string
	}{
		{"no such kind", map[string]string{"k": ref("nobody"), "users": lenstest.Users}, `k.yaml:2:33: this service has no kind "nobody"; it has: gone, k, users`},
		{"content", map[string]string{"k": ref("secrets"), "secrets": lenstest.SecretsByLocation}, "k.yaml:2:33: the key of secrets in one version does not determine the key in the other (its lens takes {region} from a field), so that a reference cannot follow it; if a field of this record holds the value in both versions, give with: {region: {field: ...}}"},
		{"no such part", map[string]string{"k": ref("users, with: {user: {field: f}}"), "users": lenstest.Users}, "k.yaml:2:47: with: {user} is no variable that the key of users takes from a field"},
		{"type of a part", map[string]string{"k": ref("a, with: {n: {field: f, type: uuid}}"), "a": "key: {from: '{id}', to: '{n:int}/{id}', with: {n: {field: n}}}\noperations: []"}, "k.yaml:2:43: with: {n} is of type int in the key of a, which has no reversible conversion to uuid"},
		{"child", map[string]string{"k": ref("lines"), "o": lenstest.Orders(lenstest.LinesByOrder)}, "k.yaml:2:33: lines of this service is a kind of one version only"},
		{"discontinued", map[string]string{"k": ref("gone")}, "k.yaml:2:33: gone of this service is discontinued"},
		{"no file", map[string]string{"k": "operations: []\nimports: {billing: nowhere/lens.yaml}\n"}, "k.yaml:2:11: imports: lens of billing: open nowhere/lens.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := lens.NewSet()
			for name, text := range tc.texts {
				l, err := lens.Parse(name+".yaml", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				set.Add(name, name, l)
			}
			set.AddDiscontinued("gone")
			err := set.Link()
			var bad *lens.ParseError
			if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error is %v, want %q", err, tc.want)
			}
		})
	}
	l, err := lens.Parse("k.yaml", []byte(ref("users")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lenstest.Take(l.Spec("k", "k").Up, lenstest.FromJSON(t, `k {"_id":1,"f":"x"}`), nil); err == nil || !strings.Contains(err.Error(), "nothing linked it") {
		t.Errorf("not linked: %v", err)
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	link := func(file string) (*lens.Lens, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		l, err := lens.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		set := lens.NewSet()
		set.Add("bills", "bills", l)
		return l, set.Link()
	}
	write("accounts/users.yaml", lenstest.Users)
	write("accounts/groups.yaml", "kinds: {from: groups, to: groups}\noperations: [{hook: {name: unknown, field: x}}]\n")
	bills := write("billing/bills.yaml", "imports: {accounts: [../accounts/users.yaml, ../accounts/groups.yaml]}\noperations:\n  - reference: {field: payer, kind: users, service: accounts}\n")
	l, err := link(bills)
	if err != nil {
		t.Fatal(err)
	}
	s := l.Spec("bills", "bills")
	if got := lenstest.Show(t, lenstest.MustTake(t, s.Up, lenstest.FromJSON(t, `bills {"_id":1,"payer":"users/ann"}`), nil)); got != `bills {"_id":1,"payer":"orgs/acme/users/ann"}` {
		t.Errorf("became %s", got)
	}
	// The keys of the other service are part of what this lens does.
	write("accounts/users.yaml", strings.Replace(lenstest.Users, "acme", "other", 1))
	other, err := link(bills)
	if err != nil {
		t.Fatal(err)
	}
	if other.Spec("bills", "bills").Revision == s.Revision {
		t.Error("the revision does not follow the imported lens")
	}

	circle := write("circle/a.yaml", "kinds: {from: a, to: a}\noperations: []\nimports: {b: b.yaml}\n")
	write("circle/b.yaml", "kinds: {from: b, to: b}\nimports: {a: a.yaml}\noperations: []\n")
	if _, err := link(circle); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "circle/b.yaml")+":2:11: imports form a cycle: ") {
		t.Errorf("circle: %v", err)
	}
	write("billing/nameless.yaml", "operations: []\n")
	if _, err := link(write("billing/x.yaml", "imports: {n: nameless.yaml}\noperations: []\n")); err == nil || !strings.Contains(err.Error(), "does not name its kind") {
		t.Errorf("no kinds: %v", err)
	}
	if _, err := link(write("billing/y.yaml", "imports: {n: ../accounts/users.yaml}\noperations:\n  - reference: {field: f, kind: bills, service: n}\n")); err == nil || !strings.Contains(err.Error(), `service n has no kind "bills"; it has: users`) {
		t.Errorf("kind of another service: %v", err)
	}
}
