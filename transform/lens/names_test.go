package lens_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/internal/base/raced"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/transform/lens/internal/keymap"
)

func keysOf(t interface{ Fatal(...any) }, text string) *keymap.Keys {
	l, err := lens.Parse("test.yaml", []byte("operations: []\nkey:\n"+text))
	if err != nil {
		t.Fatal(err, text)
	}
	return l.Keys()
}

const regions = "  from: projects/{project}/secrets/{secret}\n  to: projects/{project}/regions/{region}/secrets/{secret}\n"

func TestNamesAndParents(t *testing.T) {
	t.Parallel()
	constant := keysOf(t, regions+"  with: {region: us-west2}\n")
	field := keysOf(t, regions+"  with: {region: {field: region}}\n")
	last := keysOf(t, "  from: a/{x}/b/{y}\n  to: b/{y}/a/{x}/c/{z}\n  with: {z: '1'}\n")
	whole := keysOf(t, "  from: old/{_key}\n  to: regions/eu/{_key}\n")
	for _, tc := range []struct {
		keys           *keymap.Keys
		up             bool
		what, in, want string // want empty: an error
	}{
		{constant, true, "name", "projects/p/secrets/s", "projects/p/regions/us-west2/secrets/s"},
		{constant, false, "name", "projects/p/regions/us-west2/secrets/s", "projects/p/secrets/s"},
		{constant, false, "name", "projects/p/regions/us-east1/secrets/s", ""},
		{constant, true, "parent", "projects/p", "projects/p/regions/us-west2"},
		{constant, true, "parent", "projects/p/secrets", "projects/p/regions/us-west2/secrets"},
		{constant, true, "parent", "projects", "projects"},
		{constant, false, "parent", "projects/p", "projects/p"},
		{constant, false, "parent", "projects/p/regions/us-west2", "projects/p"},
		{constant, false, "parent", "projects/p/regions/us-east1", ""},
		{constant, false, "parent", "projects/p/regions", "projects/p/secrets"},
		{constant, true, "parent", "projects/p/secrets/s", ""},
		{constant, true, "parent", "projects//secrets", ""},
		{constant, true, "parent", "folders/f", ""},
		{constant, true, "prefix", "projects/p/", "projects/p/regions/us-west2/secrets/"},
		{constant, true, "prefix", "projects/p/secrets/ab", "projects/p/regions/us-west2/secrets/ab"},
		{constant, true, "prefix", "projects/p", "projects/p"},
		{constant, true, "prefix", "projects/p/sec", ""},
		{constant, true, "prefix", "proj", ""},
		{constant, false, "prefix", "projects/p/regions/us-west2/secrets/ab", "projects/p/secrets/ab"},
		{constant, false, "prefix", "projects/p/regions/us", ""},
		{field, true, "name", "projects/p/secrets/s", ""},
		{field, false, "name", "projects/p/regions/eu/secrets/s", "projects/p/secrets/s"},
		{field, true, "parent", "projects/p", "projects/p"},
		{field, true, "parent", "projects/p/secrets", "projects/p/regions"},
		{field, false, "parent", "projects/p", "projects/p"},
		{field, false, "parent", "projects/p/regions/eu", ""},
		{last, true, "name", "a/1/b/2", "b/2/a/1/c/1"},
		{last, true, "parent", "a/1", ""},
		{last, false, "parent", "b/2", ""},
		{whole, true, "name", "old/x/y", "regions/eu/x/y"},
		{whole, true, "parent", "old/x", "regions/eu/x"},
		{whole, true, "parent", "old", "regions/eu"},
		{whole, true, "parent", "new/x", ""},
		{whole, false, "parent", "regions/eu/x", "old/x"},
		{whole, false, "parent", "regions", ""},
		{constant, true, "parent", "", ""},
	} {
		way := keymap.Way{Keys: tc.keys, Up: tc.up}
		f := map[string]func(string) (string, error){"name": way.Name, "parent": way.Parent, "prefix": way.Prefix}[tc.what]
		got, err := f(tc.in)
		if tc.what == "parent" && tc.in == "" {
			if got != "" || err != nil {
				t.Errorf("the empty parent became %q, %v", got, err)
			}
			continue
		}
		var m *transform.MappingError
		if got != tc.want && err == nil || (err != nil) != (tc.want == "") || err != nil && !errors.As(err, &m) {
			t.Errorf("%s %q (up: %t): %q, %v; want %q", tc.what, tc.in, tc.up, got, err, tc.want)
		}
	}
}

// drawKeys draws a key section whose patterns have the same variables in any order, with
// text around and constants between.
func drawKeys(t *rapid.T) (*keymap.Keys, string) {
	side := func(label string) string {
		var parts []string
		for i, v := range rapid.Permutation([]string{"x", "y", "z"}).Draw(t, label) {
			if rapid.Bool().Draw(t, "literal") {
				parts = append(parts, fmt.Sprintf("l%d", i))
			}
			after := rapid.SampledFrom([]string{"", "", "-"}).Draw(t, "after")
			parts = append(parts, rapid.SampledFrom([]string{"", "", "v"}).Draw(t, "before")+"{"+v+"}"+after)
		}
		if rapid.Bool().Draw(t, "end") {
			parts = append(parts, "end")
		}
		return strings.Join(parts, "/")
	}
	from, to := side("from"), side("to")
	text := fmt.Sprintf("  from: '%s'\n  to: '%s'\n", from, to)
	if rapid.Bool().Draw(t, "constant") {
		text = fmt.Sprintf("  from: '%s'\n  to: '{c}/%s'\n  with: {c: one}\n", from, to)
	}
	if rapid.Bool().Draw(t, "constant there") {
		text = "  without: {d: two}\n" + strings.Replace(text, "'\n  to:", "/{d}'\n  to:", 1)
	}
	return keysOf(t, text), text
}

// drawName draws a name of the source side, of those that have a counterpart.
func drawName(t *rapid.T, way keymap.Way) string {
	src, at := way.Source()
	values := make([]string, len(at))
	for i, slot := range at {
		if values[i] = way.Variables[slot].Constant; values[i] == "" {
			values[i] = rapid.StringMatching(`[ab.\-0]{1,3}`).Draw(t, "value")
		}
	}
	name, err := src.Pattern().Name(values)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestKeysAreOneToOne: two names never have one counterpart, and each comes back.
func TestKeysAreOneToOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k, text := drawKeys(t)
		up, down := keymap.Way{Keys: k, Up: true}, keymap.Way{Keys: k, Up: false}
		if rapid.Bool().Draw(t, "down") {
			up, down = down, up
		}
		a, b := drawName(t, up), drawName(t, up)
		ma, errA := up.Name(a)
		mb, errB := up.Name(b)
		if errA != nil || errB != nil {
			t.Fatalf("%s: %v, %v", text, errA, errB)
		}
		if (a == b) != (ma == mb) {
			t.Fatalf("%s: %q and %q became %q and %q", text, a, b, ma, mb)
		}
		if back, err := down.Name(ma); err != nil || back != a {
			t.Fatalf("%s: %q became %q and came back as %q (%v)", text, a, ma, back, err)
		}
	})
}

// TestParentsAndOrder: the names under a parent, and no others, are under its
// counterpart; and where keepsOrder returns true, they sort alike.
func TestParentsAndOrder(t *testing.T) {
	t.Parallel()
	mapped, ordered := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		k, text := drawKeys(t)
		way := keymap.Way{Keys: k, Up: rapid.Bool().Draw(t, "up")}
		names := make([]string, rapid.IntRange(1, 12).Draw(t, "names"))
		for i := range names {
			names[i] = drawName(t, way)
		}
		slices.Sort(names)
		parts := strings.Split(names[0], "/")
		parent := strings.Join(parts[:rapid.IntRange(0, len(parts)-1).Draw(t, "parent")], "/")
		under := func(name, parent string) bool { return parent == "" || strings.HasPrefix(name, parent+"/") }
		there := make([]string, len(names))
		for i, n := range names {
			var err error
			if there[i], err = way.Name(n); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := way.Parent(parent); err == nil && p != "" {
			mapped++
			for i := range names {
				if under(names[i], parent) != under(there[i], p) {
					t.Fatalf("%s: %q under %q, but %q under %q", text, names[i], parent, there[i], p)
				}
			}
		}
		prefix := names[0][:rapid.IntRange(0, len(names[0])).Draw(t, "prefix")]
		if p, err := way.Prefix(prefix); err == nil {
			for i := range names {
				if strings.HasPrefix(names[i], prefix) != strings.HasPrefix(there[i], p) {
					t.Fatalf("%s: %q begins with %q, but %q with %q", text, names[i], prefix, there[i], p)
				}
			}
		}
		if !way.KeepsOrder(parent) {
			return
		}
		ordered++
		last := ""
		for i := range names {
			if !under(names[i], parent) {
				continue
			}
			if there[i] < last {
				t.Fatalf("%s under %q: %q are not sorted as %q", text, parent, there, names)
			}
			last = there[i]
		}
	})
	if (mapped == 0 || ordered == 0) && !raced.FewDrawn() {
		t.Errorf("%d parents, %d of them ordered: nothing was tested", mapped, ordered)
	}
}

func TestKeepsOrder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, parent string
		want         bool
	}{
		{regions + "  with: {region: us}\n", "", true},
		{regions + "  with: {region: us}\n", "projects/p", true},
		{regions + "  with: {region: {field: r}}\n", "projects/p", false},
		{"  from: '{x}'\n  to: '{x}/end'\n", "", false},
		{"  from: a/{x}/{y}\n  to: a/{y}/{x}\n", "", false},
		{"  from: a/{x}/{y}\n  to: a/{y}/{x}\n", "a/1", false}, // y ends the one, and stands before /1 in the other
		{"  from: a/{x}/{y}/z\n  to: a/{y}/{x}\n", "a/1", true},
		{"  from: a/{x}\n  to: '{x}-'\n", "", false},
		{"  from: a/{_key}\n  to: b/{_key}\n", "", true},
	} {
		if got := (keymap.Way{Keys: keysOf(t, tc.text), Up: true}).KeepsOrder(tc.parent); got != tc.want {
			t.Errorf("%q under %q: %t", tc.text, tc.parent, got)
		}
	}
}
