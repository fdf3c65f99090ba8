package lawtest_test

import (
	"cmp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lawtest"
)

// pair is a version's record: n is in both, only in one of them.
type pair struct{ n, only int64 }

func encode(kind, only, name string, p pair) record.Record {
	doc, err := bson.Marshal(bson.D{{Key: "_id", Value: name}, {Key: "n", Value: p.n}, {Key: only, Value: p.only}})
	if err != nil {
		panic(err)
	}
	return record.Record{Kind: kind, Key: record.StringKey(name), Doc: doc}
}

func decode(only string, g transform.Group) pair {
	if len(g.Records) == 0 {
		return pair{}
	}
	var out pair
	out.n, _ = g.Records[0].Doc.Lookup("n").AsInt64OK()
	out.only, _ = g.Records[0].Doc.Lookup(only).AsInt64OK()
	return out
}

// mapper is a transformer's work on one record.
type mapper func(src, have pair, held bool) (pair, bool)

func keep(src, have pair, _ bool) (pair, bool) { return pair{src.n, have.only}, true }

func spec(up, down mapper) transform.Spec {
	side := func(kind string) transform.Side {
		return transform.Side{Kinds: []transform.GroupedKind{{KindSpec: record.KindSpec{Name: kind}}}}
	}
	run := func(m mapper, kind, from, to string) transform.Func {
		return func(src, have transform.Group) ([]record.Record, error) {
			out, ok := m(decode(from, src), decode(to, have), len(have.Records) > 0)
			if len(src.Records) == 0 && len(have.Records) > 0 && !ok {
				return have.Records, nil
			}
			if len(src.Records) == 0 {
				return nil, nil
			}
			return []record.Record{encode(kind, to, src.Records[0].Key.String(), out)}, nil
		}
	}
	return transform.Spec{
		Name: "s", Revision: "1", Old: side("old"), New: side("new"), UpNeedsHave: true, DownNeedsHave: true,
		Up: run(up, "new", "a", "b"), Down: run(down, "old", "b", "a"),
	}
}

func check(t *testing.T, s transform.Spec) {
	r := transform.NewRegistry("test")
	if err := r.Add("v1", "v2", s); err != nil {
		t.Fatal(err)
	}
	up, err1 := r.Direction("v1", "v2")
	down, err2 := r.Direction("v2", "v1")
	if err := cmp.Or(err1, err2); err != nil {
		t.Fatal(err)
	}
	draw := func(kind, only string) *rapid.Generator[[]record.Record] {
		return rapid.Custom(func(t *rapid.T) []record.Record {
			n := rapid.Int64Range(0, 3)
			return []record.Record{encode(kind, only, rapid.SampledFrom([]string{"g", "h"}).Draw(t, "key"), pair{n.Draw(t, "n"), n.Draw(t, "only")})}
		})
	}
	lawtest.Check(t, lawtest.Case{Up: up, Down: down, Old: draw("old", "a"), New: draw("new", "b"), LossyUp: true, LossyDown: true})
}

func TestLawful(t *testing.T) { check(t, spec(keep, keep)) }

// broken are transformers that each break one law at least, and which one is found.
var broken = map[string]struct {
	law      string
	up, down mapper
}{
	"loses a change": {"put-get", keep, func(src, have pair, held bool) (pair, bool) {
		if held {
			return have, true
		}
		return pair{src.n, 0}, true
	}},
	"forgets the complement": {"get-put", func(src, _ pair, _ bool) (pair, bool) { return pair{src.n, 0}, true }, keep},
	"is not stable":          {"stable", func(src, have pair, _ bool) (pair, bool) { return pair{src.n, have.only + 1}, true }, keep},
	"changes a value":        {"projection after promotion", func(src, have pair, _ bool) (pair, bool) { return pair{src.n + 1, have.only}, true }, keep},
	"keeps deleted records":  {"deleted", func(src, have pair, _ bool) (pair, bool) { return pair{src.n, have.only}, false }, keep},
}

// TestBroken is run by TestBrokenLawsAreFound in another process, and must fail there.
func TestBroken(t *testing.T) {
	b, ok := broken[os.Getenv("LAWTEST_BROKEN")]
	if !ok {
		return
	}
	check(t, spec(b.up, b.down))
}

func TestBrokenLawsAreFound(t *testing.T) {
	t.Parallel()
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$", "-test.v", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), "LAWTEST_BROKEN="+name)
			out, err := cmd.CombinedOutput()
			if want := "--- FAIL: TestBroken/" + strings.ReplaceAll(b.law, " ", "_"); err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%q is not found: %v\n%s", b.law, err, out)
			}
		})
	}
}
