package transform_test

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/memstore"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
)

// wholes become heads with parts "<head>/<part>"; a part with another slash has no group.
func headsAndParts(t *testing.T) *transform.Registry {
	t.Helper()
	none := func(transform.Group, transform.Group) ([]record.Record, error) { return nil, nil }
	r := transform.NewRegistry("test")
	err := r.Add("v1", "v2", transform.Spec{
		Name: "split", Revision: "1", Up: none, Down: none,
		Old: transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: "wholes"}}}},
		New: transform.Side{Kinds: []transform.GroupedKind{
			{KindSpec: record.KindSpec{Name: "heads"}},
			{
				KindSpec: record.KindSpec{Name: "parts"},
				GroupOf: func(k record.Key) (string, error) {
					name, _ := k.Name()
					head, part, ok := strings.Cut(name, "/")
					if !ok || strings.Contains(part, "/") {
						return "", errors.New("not <head>/<part>")
					}
					return string(record.StringKey(head)), nil
				},
				Select: func(group string) record.Selector {
					name, _ := record.Key(group).Name()
					return record.Selector{Key: record.StringKey(name + "/"), Prefix: true}
				},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func way(t *testing.T, from, to string) transform.Direction {
	t.Helper()
	d, err := headsAndParts(t).Direction(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// database has both kinds of the new side, with tokens.
func database(t *testing.T) (*memstore.Store, record.Tokens) {
	t.Helper()
	s, toks := memstore.New(), record.Tokens{}
	for _, kind := range []string{"heads", "parts"} {
		tok, err := s.Provision(t.Context(), record.KindSpec{Name: kind}, record.PhysicalName(kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		toks[kind] = tok
	}
	return s, toks
}

func document(t *testing.T, name string) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(bson.D{{Key: "_id", Value: name}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func store(t *testing.T, s *memstore.Store, toks record.Tokens, kind string, names ...string) {
	t.Helper()
	var ms []record.Mutation
	for _, n := range names {
		ms = append(ms, record.Mutation{Kind: kind, Key: record.StringKey(n), Doc: document(t, n)})
	}
	if err := s.Write(t.Context(), toks, ms); err != nil {
		t.Fatal(err)
	}
}

func groupID(name string) transform.GroupID {
	return transform.GroupID{Name: string(record.StringKey(name))}
}

// shown is what a group holds, in its order.
func shown(rs []record.Record) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Kind+":"+r.Key.String())
	}
	return strings.Join(out, " ")
}

func TestReadSource(t *testing.T) {
	t.Parallel()
	s, toks := database(t)
	store(t, s, toks, "parts", "a/2", "a/1", "a/1/no-group", "b/1", "c/1")
	store(t, s, toks, "heads", "a", "c")
	ids := []transform.GroupID{groupID("a"), groupID("b"), groupID("absent")}
	groups, version, err := transform.ReadSource(t.Context(), s, way(t, "v2", "v1"), transform.View{Tokens: toks}, ids)
	if err != nil {
		t.Fatal(err)
	}
	if version.IsZero() {
		t.Error("no version")
	}
	if len(groups) != 2 {
		t.Errorf("%d groups, want a and b: %v", len(groups), groups)
	}
	for id, want := range map[transform.GroupID]string{ids[0]: "heads:a parts:a/1 parts:a/2", ids[1]: "parts:b/1"} {
		if g := groups[id]; g.Name != id.Name || shown(g.Records) != want {
			t.Errorf("group %q holds %q, want %q", g.Name, shown(g.Records), want)
		}
	}
}

// TestReadSourceNotBefore: a reader that may lag must not, where the caller knows a later
// version.
func TestReadSourceNotBefore(t *testing.T) {
	t.Parallel()
	s := memstore.NewCluster(memstore.Options{Lag: 100}).Open("test")
	tok, err := s.Provision(t.Context(), record.KindSpec{Name: "wholes"}, "wholes.n1")
	if err != nil {
		t.Fatal(err)
	}
	toks := record.Tokens{"wholes": tok}
	store(t, s, toks, "wholes", "a")
	now, err := s.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := []transform.GroupID{groupID("a")}
	for notBefore, want := range map[record.Version]int{{}: 0, now.At: 1} {
		groups, at, err := transform.ReadSource(t.Context(), s, way(t, "v1", "v2"), transform.View{Tokens: toks, NotBefore: notBefore}, ids)
		if err != nil || len(groups) != want || at.Compare(notBefore) < 0 {
			t.Errorf("not before %s: %d groups at %s, %v; want %d", notBefore, len(groups), at, err, want)
		}
	}
}

func TestReadTarget(t *testing.T) {
	t.Parallel()
	s, toks := database(t)
	dir := way(t, "v1", "v2")
	apply := func(epoch uint64, name string, live ...string) record.Guard {
		t.Helper()
		g := record.GroupWrite{Group: name, Version: record.Version{1}, Writes: []record.Write{{Kind: "heads", Key: record.StringKey(name)}}}
		for _, n := range live {
			kind := "parts"
			if n == name {
				g.Writes[0].Doc = document(t, n)
				continue
			}
			g.Writes = append(g.Writes, record.Write{Kind: kind, Key: record.StringKey(n), Doc: document(t, n)})
		}
		res, err := s.Apply(t.Context(), record.Batch{Tokens: toks, Epoch: epoch, Groups: []record.GroupWrite{g}})
		if err != nil || res[0].Outcome != record.Applied {
			t.Fatalf("apply %s: %v, %v", name, res, err)
		}
		return record.Guard{Epoch: epoch, Version: g.Version}
	}
	live := apply(1, "live", "live", "live/2", "live/1")
	dead := apply(2, "dead")
	headless := apply(3, "headless", "headless/1")
	store(t, s, toks, "parts", "live/1/no-group", "other/1")
	ids := []transform.GroupID{groupID("live"), groupID("dead"), groupID("headless"), groupID("absent")}
	held, err := transform.ReadTarget(t.Context(), s, dir, transform.View{Tokens: toks}, ids)
	if err != nil {
		t.Fatal(err)
	}
	if len(held) != len(ids) {
		t.Errorf("%d entries, want %d", len(held), len(ids))
	}
	for i, want := range []struct {
		records string
		anchor  record.Guard
	}{
		{"heads:live parts:live/1 parts:live/2", live},
		{"", dead}, // the tombstone stands for the group, and is no record of it
		{"parts:headless/1", headless},
		{"", record.Guard{}},
	} {
		if h := held[ids[i]]; h.Name != ids[i].Name || shown(h.Records) != want.records || h.Anchor != want.anchor {
			t.Errorf("%q holds %q with anchor %v, want %q with %v", h.Name, shown(h.Records), h.Anchor, want.records, want.anchor)
		}
	}
}

func TestReadTargetOfNothing(t *testing.T) {
	t.Parallel()
	held, err := transform.ReadTarget(t.Context(), nil, way(t, "v1", "v2"), transform.View{}, nil)
	if err != nil || len(held) != 0 {
		t.Errorf("%v, %v", held, err)
	}
}

// TestFencedRead: a token that is over reaches the caller as such, from both sides.
func TestFencedRead(t *testing.T) {
	t.Parallel()
	s, toks := database(t)
	err := s.Fence(t.Context(), record.Fence{Class: record.FenceUUID, Token: toks["parts"], To: "parts.n2"})
	if err != nil {
		t.Fatal(err)
	}
	ids := []transform.GroupID{groupID("a")}
	if _, _, err := transform.ReadSource(t.Context(), s, way(t, "v2", "v1"), transform.View{Tokens: toks}, ids); !errors.Is(err, record.ErrFenced) {
		t.Errorf("source: %v", err)
	}
	if _, err := transform.ReadTarget(t.Context(), s, way(t, "v1", "v2"), transform.View{Tokens: toks}, ids); !errors.Is(err, record.ErrFenced) {
		t.Errorf("target: %v", err)
	}
}
