package lens_test

import (
	"bytes"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// The other service's lenses, by their files.
var accounts = map[string]string{
	"users.yaml":   "kinds: {from: users, to: users}\nkey: {from: 'users/{user}', to: 'orgs/{org}/users/{user}', with: {org: acme}}\noperations: []\n",
	"ids.yaml":     "kinds: {from: ids, to: ids}\nkey: {from: '{id:objectId}', to: 'users/{id}'}\noperations: []\n",
	"teams.yaml":   "kinds: {from: teams, to: teams}\nkey: {from: 'teams/{team}', to: 'orgs/{org}/teams/{team}', with: {org: {field: org}}}\noperations: []\n",
	"numbers.yaml": "kinds: {from: numbers, to: numbers}\nkey: {from: 'n/{id}', to: '{number:int}', with: {number: {field: number}}, without: {id: {field: id}}}\noperations: []\n",
	"alike.yaml":   "kinds: {from: alike, to: alike}\nkey: {from: '{name}', to: 'u-{name}'}\noperations: []\n",
	"same.yaml":    "kinds: {from: same, to: same}\noperations: []\n",
}

const imported = "imports: {accounts: [users.yaml, ids.yaml, teams.yaml, numbers.yaml, alike.yaml, same.yaml]}\n"

// following is a data update of operations, over the lenses of accounts.
func following(t testing.TB, keys transform.Keys, operations ...string) (*lens.Following, error) {
	t.Helper()
	text := imported + "operations:\n"
	for _, o := range operations {
		text += "  - " + o + "\n"
	}
	l, err := lens.Parse("bills.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l.FollowIn("bills", keys, accountSet())
}

func accountSet() *lens.Set {
	s := lens.NewSet()
	s.Load(func(file string) ([]byte, error) { return []byte(accounts[file]), nil })
	return s
}

// TestFollow: from either state, and from any mixture, an update leaves what it is for, and
// changes nothing the second time.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, op       string
		old, now, both string
	}{
		{"key", "reference: {field: payer, kind: users, service: accounts, both: names}",
			`{"_id":1,"payer":"users/ann"}`, `{"_id":1,"payer":"orgs/acme/users/ann"}`, `"names":["users/ann","orgs/acme/users/ann"]`},
		{"list", "reference: {field: o.payers, kind: users, service: accounts, list: true, both: o.names}",
			`{"_id":1,"o":{"payers":["users/ann","users/bob"]}}`, `{"_id":1,"o":{"payers":["orgs/acme/users/ann","orgs/acme/users/bob"]}}`,
			`"names":["users/ann","orgs/acme/users/ann","users/bob","orgs/acme/users/bob"]`},
		{"in items", "each: {field: rows, operations: [{reference: {field: payer, kind: users, service: accounts, both: names}}]}",
			`{"_id":1,"rows":[{"payer":"users/ann"}]}`, `{"_id":1,"rows":[{"payer":"orgs/acme/users/ann"}]}`, `"names":["users/ann","orgs/acme/users/ann"]`},
		{"of another type", "reference: {field: payer, kind: ids, service: accounts, both: names}",
			`{"_id":1,"payer":{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"}}`, `{"_id":1,"payer":"users/655f1e5e5e5e5e5e5e5e5e5e"}`,
			`"names":[{"$oid":"655f1e5e5e5e5e5e5e5e5e5e"},"users/655f1e5e5e5e5e5e5e5e5e5e"]`},
		{"with a field", "reference: {field: team, kind: teams, service: accounts, with: {org: {field: org}}, both: names}",
			`{"_id":1,"org":"acme","team":"teams/a"}`, `{"_id":1,"org":"acme","team":"orgs/acme/teams/a"}`, `"names":["teams/a","orgs/acme/teams/a"]`},
		{"optional", "reference: {field: payer, kind: users, service: accounts, optional: true}", `{"_id":1,"payer":"system"}`, `{"_id":1,"payer":"system"}`, ""},
		{"absent and null", "reference: {field: o.payer, kind: users, service: accounts}", `{"_id":1,"o":{"payer":null}}`, `{"_id":1,"o":{"payer":null}}`, ""},
		{"keys that stay", "reference: {field: payer, kind: same, service: accounts}", `{"_id":1,"payer":7}`, `{"_id":1,"payer":7}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			changes := map[transform.Keys]*lens.Following{}
			for _, keys := range transform.AllKeys {
				f, err := following(t, keys, tc.op)
				if keys == transform.BothKeys && tc.both == "" {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				changes[keys] = f
			}
			become := func(keys transform.Keys, doc bson.Raw, want string) bson.Raw {
				t.Helper()
				for _, when := range []string{"first", "second"} {
					var err error
					if doc, err = changes[keys].Change(doc, nil); err != nil || !strings.Contains(lenstest.Text(doc), want) {
						t.Fatalf("%s, %s time: %s, %v; want %s", keys, when, lenstest.Text(doc), err, want)
					}
				}
				return doc
			}
			old, now := lenstest.JSON(t, tc.old), lenstest.JSON(t, tc.now)
			if got := become(transform.NewKeys, old, ""); !bytes.Equal(got, now) {
				t.Errorf("up to %s, want %s", lenstest.Text(got), tc.now)
			}
			if got := become(transform.OldKeys, now, ""); !bytes.Equal(got, old) {
				t.Errorf("back to %s, want %s", lenstest.Text(got), tc.old)
			}
			if tc.both == "" {
				return
			}
			want := lenstest.Text(lenstest.JSON(t, `{"x":{`+tc.both+`}}`).Lookup("x").Document())
			want = want[1 : len(want)-1]
			if got := become(transform.NewKeys, become(transform.BothKeys, old, want), ""); !bytes.Equal(got, now) {
				t.Errorf("held both, and up to %s", lenstest.Text(got))
			}
			if got := become(transform.OldKeys, become(transform.BothKeys, now, want), ""); !bytes.Equal(got, old) {
				t.Errorf("held both, and back to %s", lenstest.Text(got))
			}
		})
	}
}

// TestFollowMixed: clients write either key into any field while an update runs, and change the
// field without the list.
func TestFollowMixed(t *testing.T) {
	t.Parallel()
	ops := []string{
		"reference: {field: payers, kind: users, service: accounts, list: true}",
		"reference: {field: owner, kind: users, service: accounts, both: owners}",
	}
	for _, tc := range []struct {
		keys     transform.Keys
		was, now string
	}{
		{transform.NewKeys, `{"payers":["orgs/acme/users/ann","users/bob"],"owner":"users/eve"}`, `{"payers":["orgs/acme/users/ann","orgs/acme/users/bob"],"owner":"orgs/acme/users/eve"}`},
		{transform.OldKeys, `{"payers":["orgs/acme/users/ann","users/bob"],"owner":"users/eve"}`, `{"payers":["users/ann","users/bob"],"owner":"users/eve"}`},
	} {
		f, err := following(t, tc.keys, ops...)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Change(lenstest.JSON(t, tc.was), nil); err != nil || !bytes.Equal(got, lenstest.JSON(t, tc.now)) {
			t.Errorf("%s: %s, %v", tc.keys, lenstest.Text(got), err)
		}
	}
	f, err := following(t, transform.BothKeys, ops[1])
	if err != nil {
		t.Fatal(err)
	}
	for was, now := range map[string]string{
		`{"owner":"orgs/acme/users/eve","owners":["users/ann","orgs/acme/users/ann"]}`: `{"owner":"orgs/acme/users/eve","owners":["users/eve","orgs/acme/users/eve"]}`,
		`{"a":1,"owners":["users/ann","orgs/acme/users/ann"]}`:                         `{"a":1}`,
		`{"owner":"users/eve","owners":"x"}`:                                           `{"owner":"users/eve","owners":["users/eve","orgs/acme/users/eve"]}`,
	} {
		if got, err := f.Change(lenstest.JSON(t, was), nil); err != nil || !bytes.Equal(got, lenstest.JSON(t, now)) {
			t.Errorf("%s became %s, %v", was, lenstest.Text(got), err)
		}
	}
}

// TestFollowLookup: what does not follow from a key is asked for, only where it is needed.
func TestFollowLookup(t *testing.T) {
	t.Parallel()
	key := func(s string) record.Key { return record.StringKey(s) }
	ask := func(kind string, key record.Key, up bool) transform.Question {
		return transform.Question{Service: "accounts", Old: kind, New: kind, Key: key, Up: up}
	}
	number, err := record.KeyOf(lenstest.JSON(t, `{"n":7}`).Lookup("n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, op, was string
		keys          transform.Keys
		asked         []transform.Question
		answers       transform.Answers
		now, err      string
	}{
		{"up", "reference: {field: team, kind: teams, service: accounts}", `{"team":"teams/a"}`, transform.NewKeys, []transform.Question{ask("teams", key("teams/a"), true)},
			transform.Answers{ask("teams", key("teams/a"), true): key("orgs/x/teams/a")}, `{"team":"orgs/x/teams/a"}`, ""},
		{"down follows from the key", "reference: {field: team, kind: teams, service: accounts}", `{"team":"orgs/x/teams/a"}`, transform.OldKeys, nil, nil, `{"team":"teams/a"}`, ""},
		{"there already", "reference: {field: team, kind: teams, service: accounts}", `{"team":"orgs/x/teams/a"}`, transform.NewKeys, nil, nil, `{"team":"orgs/x/teams/a"}`, ""},
		{"another type", "reference: {field: n, kind: numbers, service: accounts}", `{"n":"n/a"}`, transform.NewKeys, []transform.Question{ask("numbers", key("n/a"), true)},
			transform.Answers{ask("numbers", key("n/a"), true): number}, `{"n":7}`, ""},
		{"and back", "reference: {field: n, kind: numbers, service: accounts}", `{"n":7}`, transform.OldKeys, []transform.Question{ask("numbers", number, false)},
			transform.Answers{ask("numbers", number, false): key("n/a")}, `{"n":"n/a"}`, ""},
		{"of no service", "reference: {field: team, kind: teams, service: accounts}", `{"team":"teams/a"}`, transform.NewKeys, []transform.Question{ask("teams", key("teams/a"), true)},
			nil, "", `accounts has no record of teams with this key`},
		{"another than the lens makes", "reference: {field: team, kind: teams, service: accounts}", `{"team":"teams/a"}`, transform.NewKeys, []transform.Question{ask("teams", key("teams/a"), true)},
			transform.Answers{ask("teams", key("teams/a"), true): key("x")}, "", "became another key than the lens of teams makes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f, err := following(t, tc.keys, tc.op)
			if err != nil {
				t.Fatal(err)
			}
			doc := lenstest.JSON(t, tc.was)
			asked, err := f.Questions(doc)
			if err != nil || len(asked) != len(tc.asked) || len(asked) > 0 && asked[0] != tc.asked[0] {
				t.Errorf("asked %v, %v", asked, err)
			}
			got, err := f.Change(doc, tc.answers)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s, %v; want %s", lenstest.Text(got), err, tc.err)
				}
				return
			}
			if err != nil || !bytes.Equal(got, lenstest.JSON(t, tc.now)) {
				t.Errorf("%s, %v", lenstest.Text(got), err)
			}
		})
	}
}

// TestFollowImports: what an update says of itself, and that it is another one with other keys.
func TestFollowImports(t *testing.T) {
	t.Parallel()
	op := "each: {field: rows, operations: [{each: {field: cells, operations: [{reference: {field: team, kind: teams, service: accounts}}]}}]}"
	f, err := following(t, transform.NewKeys, op)
	if err != nil {
		t.Fatal(err)
	}
	if want := (transform.Import{Service: "accounts", Kind: "teams", From: "bills", Field: "rows.*.cells.*.team", Keys: transform.NewKeys, Asks: true}); len(f.Imports) != 1 || f.Imports[0] != want {
		t.Errorf("imports %+v, want %+v", f.Imports, want)
	}
	if f.Revision != "follow c473b92aa1b6e6dc" {
		t.Errorf("revision %q: controllers of two releases compare it", f.Revision)
	}
	back, err := following(t, transform.OldKeys, op)
	if err != nil || back.Revision == f.Revision || back.Imports[0].Asks {
		t.Errorf("new and old keys have revision %s, %v; down %+v", f.Revision, err, back)
	}
}

func TestFollowErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, operations, want string }{
		{"own kind", "operations: [{reference: {field: f, kind: bills}}]", "bills.yaml:2:43: bills is a kind of this service: an upgrade changes its keys"},
		{"alike", "operations: [{reference: {field: f, kind: alike, service: accounts}}]", "bills.yaml:2:43: a key of the old version of alike can look like one of the new version ({name}, u-{name})"},
		{"something else", "operations: [{add: {field: x, value: 1}}, {reference: {field: f, kind: users, service: accounts, both: g}}]", "bills.yaml: add x: a data update with references changes nothing else"},
		{"both without a list", "operations: [{reference: {field: f, kind: users, service: accounts}}]", "bills.yaml:2:43: reference f to users: to hold both keys, set both to the field that lists them"},
		{"key", "key: {from: 'a/{a}', to: 'b/{a}'}\noperations: [{reference: {field: f, kind: users, service: accounts}}]", "bills.yaml: key changes names"},
		{"another kind", "kinds: {from: a, to: a}\noperations: [{reference: {field: f, kind: users, service: accounts}}]", "bills.yaml: kinds names a: a data update changes records of bills where they are"},
		{"no such kind", "operations: [{reference: {field: f, kind: nobody, service: accounts}}]", `bills.yaml:2:43: service accounts has no kind "nobody"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l, err := lens.Parse("bills.yaml", []byte(imported+tc.operations))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.FollowIn("bills", transform.BothKeys, accountSet()); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
	for text, want := range map[string]string{
		"reference: {field: f, kind: bills, both: g}":                          "both is for a kind of another service",
		"reference: {field: f, kind: users, service: accounts, both: f}":       "both must name another field of the object that has f",
		"reference: {field: o.f, kind: users, service: accounts, both: names}": "both must name another field of the object that has o.f",
	} {
		if _, err := lens.Parse("bills.yaml", []byte(imported+"operations:\n  - "+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	f, err := following(t, transform.NewKeys, "reference: {field: f, kind: users, service: accounts}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Change(lenstest.JSON(t, `{"f":"x"}`), nil); err == nil || !strings.Contains(err.Error(), "not a key of users in either version") {
		t.Errorf("no key: %v", err)
	}
}

// TestDisjoint: forms are told apart only where no key can have both.
func TestDisjoint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key  string
		want bool
	}{
		{"{from: 'a/{x}', to: 'b/{x}'}", true},
		{"{from: 'a/{x}', to: 'a/{y}/{x}', with: {y: z}}", true},
		{"{from: '{x}/a', to: '{y}/{x}', with: {y: z}}", false},
		{"{from: 'a/{x}', to: '{y}/{x}', with: {y: b}}", true},
		{"{from: 'a/{x}', to: '{y}/{x}', with: {y: a}}", false},
		{"{from: 'a/{x}', to: '{y}/{x}', with: {y: {field: y}}}", false},
		{"{from: 'a-{x}', to: 'b-{x}'}", true},
		{"{from: 'a-{x}', to: 'a-b-{x}'}", false},
		{"{from: '{x}-a', to: '{x}-b'}", true},
		{"{from: '{_key}', to: 'a/{_key}'}", false},
		{"{from: 'b/{_key}', to: 'a/{_key}'}", true},
		{"{from: '{_key}/b', to: '{_key}/a'}", true},
		{"{from: 'a/{_key}', to: 'x/{_key}/y'}", true},
		{"{from: '{x}', to: 'a/{x}'}", true},
		{"{from: '{x:objectId}', to: 'a/{x}'}", true},
		{"{from: '{x:objectId}', to: '{x}'}", true},
		{"{from: '{x:int}', to: '{x:long}'}", false},
		{"{from: '{x:int}', to: {a: '{x:int}'}}", true},
		{"{from: {a: '{x}'}, to: {b: '{x}'}}", true},
		{"{from: {a: '{x}', t: 1}, to: {a: '{x}', t: 2}}", true},
		{"{from: {a: '{x}'}, to: {a: '{x}', t: 2}}", true},
		{"{from: {a: 'u/{x}'}, to: {a: 'v/{x}'}}", true},
		{"{from: {a: '{x}'}, to: {a: 'v{x}'}}", false},
	} {
		l, err := lens.Parse("k.yaml", []byte("key: "+tc.key+"\noperations: []"))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Keys().From.Disjoint(l.Keys().To, l.Keys()); got != tc.want {
			t.Errorf("%s: %v", tc.key, got)
		}
		if got := l.Keys().To.Disjoint(l.Keys().From, l.Keys()); got != tc.want {
			t.Errorf("%s, the other way round: %v", tc.key, got)
		}
	}
}
