package keymap_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dbcontroller.dev/transform/lens"
)

func pattern(t interface{ Fatal(...any) }, text string) *lens.Pattern {
	p, err := lens.ParsePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPatternMatch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<16)
	for _, tc := range []struct {
		pattern, name string
		want          []string // nil: no match
	}{
		{"a", "a", []string{}},
		{"a", "b", nil},
		{"p/{p}", "p/1", []string{"1"}},
		{"p/{p}", "p/", nil},
		{"p/{p}", "p", nil},
		{"p/{p}", "p/1/", nil},
		{"p/{p}", "/p/1", nil},
		{"p/{p}", "p/1/2", nil},
		{"p/{p}/s/{s}", "p/1/s/2", []string{"1", "2"}},
		{"p/{p}/s/{s}", "p//s/2", nil},
		{"p/{p}/s/{s}", "p/s/s/s", []string{"s", "s"}},
		{"p/{p}/s/{s}", "p/1/t/2", nil},
		{"/registry/{n}", "/registry/x", []string{"x"}},
		{"v-{v}.json", "v-1.json", []string{"1"}},
		{"v-{v}.json", "v-.json", nil},
		{"v-{v}-v", "v-v", nil},
		{"v-{v}-v", "v--v-v", []string{"-v"}},
		{"{_key}", "", []string{""}},
		{"{_key}", "a/b/", []string{"a/b/"}},
		{"x/{_key}", "x/a/b", []string{"a/b"}},
		{"x/{_key}", "x", nil},
		{"{_key}/d/{id}", "a/b/d/1", []string{"a/b", "1"}},
		{"{_key}/d/{id}", "a/d/1/d/2", []string{"a/d/1", "2"}},
		{"{_key}/d/{id}", "d/1", nil},
		{"{_key}/d/{id}", "/d/1", []string{"", "1"}},
		{"{a}/{_key}-x/{b}", "1/2/3-x/4", []string{"1", "2/3", "4"}},
		{"{a}/{_key}-x/{b}", "1/2/3/4", nil},
		{"p/{p}", "p/\u00fc\U0001F511 %2F{}\x00", []string{"\u00fc\U0001F511 %2F{}\x00"}},
		{"p/{p}", "p/" + long, []string{long}},
	} {
		p := pattern(t, tc.pattern)
		got, err := p.Match(tc.name)
		if (err == nil) != (tc.want != nil) || err == nil && !slices.Equal(got, tc.want) {
			t.Errorf("%s of %.40q: %.40q, %v", tc.pattern, tc.name, got, err)
		}
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			continue
		}
		if name, err := p.Name(got); err != nil || name != tc.name {
			t.Errorf("%s: %.40q became %.40q (%v)", tc.pattern, tc.name, name, err)
		}
	}
}

func TestPatternErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                  "empty",
		"a//b":              "empty segment",
		"a/":                "empty segment",
		"{a}{b}":            "two variables",
		"{a}-{b}":           "two variables",
		"{a":                "{ without }",
		"a}":                "} without {",
		"{}":                "not the name of a variable",
		"{1a}":              "not the name of a variable",
		"{a.b}":             "not the name of a variable",
		"{item.}":           "not the name of a variable",
		"{a}/{a}":           "twice",
		"{_key}/{_key}":     "twice",
		"a\x00":             "NUL",
		"{a/b}":             "{ without }",
		"{\u00fc}/{\u00fc}": "not the name of a variable",
	} {
		if _, err := lens.ParsePattern(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	p := pattern(t, "p/{p}/{q}")
	for _, values := range [][]string{{"a"}, {"a", ""}, {"a", "b/c"}, {"a", "b", "c"}} {
		if name, err := p.Name(values); err == nil {
			t.Errorf("%q became %q", values, name)
		}
	}
}

// segmentText draws what can stand in a pattern or a name.
func segmentText(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"a", "b", "a-b", "-", "\u00fc", "a.b", "aa", "x"}).Draw(t, label)
}

// TestPatternIsOneToOne: a name is read in one way, and values that differ give names
// that differ.
func TestPatternIsOneToOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		variables := []string{"{v}", "{w}", "{_key}"}
		var parts []string
		for range rapid.IntRange(1, 5).Draw(t, "segments") {
			if len(variables) > 0 && rapid.Bool().Draw(t, "variable") {
				i := rapid.IntRange(0, len(variables)-1).Draw(t, "which")
				part := rapid.SampledFrom([]string{"", "a", "-"}).Draw(t, "before") + variables[i] + rapid.SampledFrom([]string{"", "a", "-"}).Draw(t, "after")
				variables = slices.Delete(slices.Clone(variables), i, i+1)
				parts = append(parts, part)
				continue
			}
			parts = append(parts, segmentText(t, "text"))
		}
		p := pattern(t, strings.Join(parts, "/"))
		draw := func(label string) []string {
			var values []string
			for _, v := range p.Variables() {
				value := segmentText(t, label)
				if v == lens.WholeKey && rapid.Bool().Draw(t, "slashes") {
					value += "/" + segmentText(t, label)
				}
				values = append(values, value)
			}
			return values
		}
		a, b := draw("a"), draw("b")
		nameA, err := p.Name(a)
		if err != nil {
			t.Fatal(err)
		}
		back, err := p.Match(nameA)
		if err != nil || !slices.Equal(back, a) {
			t.Fatalf("%s: %q became %q and came back as %q (%v)", p, a, nameA, back, err)
		}
		nameB, err := p.Name(b)
		if err != nil {
			t.Fatal(err)
		}
		if (nameA == nameB) != slices.Equal(a, b) {
			t.Fatalf("%s: %q and %q became %q and %q", p, a, b, nameA, nameB)
		}
	})
}
