package verify_test

import (
	"slices"
	"testing"

	"dbcontroller.dev/internal/engine/verify"
	"dbcontroller.dev/transform"
)

// TestWaivedIsCountedApart: what was waived is no difference, and hides none.
func TestWaivedIsCountedApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waived        verify.Waived
		differ, waive []string
	}{
		"nothing":      {verify.Waived{}, []string{"a", "b", "parts astray (in the target alone)"}, nil},
		"a group":      {verify.Waived{Groups: map[transform.GroupID]bool{group("b"): true, group("e"): true}}, []string{"a", "parts astray (in the target alone)"}, []string{"b"}},
		"an orphan":    {verify.Waived{Orphans: map[verify.Name]bool{{Kind: "parts", Key: "astray"}: true}}, []string{"a", "b"}, []string{"parts astray (in the target alone)"}},
		"a kind":       {verify.Waived{Kinds: map[string]bool{"wholes": true}}, []string{"b", "parts astray (in the target alone)"}, []string{"a"}},
		"another kind": {verify.Waived{Kinds: map[string]bool{"parts": true}}, []string{"a", "b", "parts astray (in the target alone)"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.put(t, "wholes", "a", whole("a", -1, 0)) // cannot be transformed
			w.put(t, "heads", "b", nil)
			w.put(t, "parts", "astray", doc("astray", 0))
			rep, err := w.up.Run(t.Context(), w.oldView(), w.newView(), verify.Recheck{Tries: 1, Waived: tc.waived}, nil)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(rep.Examples)
			if !slices.Equal(rep.Examples, tc.differ) || rep.Mismatched != int64(len(tc.differ)) {
				t.Errorf("%d differ, %q, want %q", rep.Mismatched, rep.Examples, tc.differ)
			}
			if !slices.Equal(rep.WaivedExamples, tc.waive) || rep.Waived != int64(len(tc.waive)) {
				t.Errorf("%d are waived, %q, want %q", rep.Waived, rep.WaivedExamples, tc.waive)
			}
		})
	}
}

// TestLeftBehindBeyondTheList: a switch waived more records of a kind than are listed. Those that
// cannot be brought to the version that is active now count as waived; a record that was deleted
// or made anew there since, and one of another kind, count as different.
func TestLeftBehindBeyondTheList(t *testing.T) {
	t.Parallel()
	up, _ := directions(t)
	for name, tc := range map[string]struct {
		kind          string
		differ, waive []string
	}{
		"the kind":     {"wholes", []string{"b", "y"}, []string{"z"}},
		"another kind": {"others", []string{"b", "y", "z"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.put(t, "wholes", "z", whole("z", -1, 0)) // in the version that was left alone
			w.put(t, "wholes", "y", whole("y", -1, 0)) // likewise, and made anew in the active one since
			w.put(t, "heads", "y", doc("y", 5))
			w.put(t, "heads", "b", nil) // deleted in the active one, not yet in the other
			w.put(t, "parts", "b/0", nil)
			rep, err := w.down.Run(t.Context(), w.newView(), w.oldView(),
				verify.Recheck{Tries: 1, Waived: verify.Waived{LeftKinds: map[string]bool{tc.kind: true}, Back: up}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(rep.Examples)
			if !slices.Equal(rep.Examples, tc.differ) || !slices.Equal(rep.WaivedExamples, tc.waive) {
				t.Errorf("%q differ and %q are waived, want %q and %q", rep.Examples, rep.WaivedExamples, tc.differ, tc.waive)
			}
		})
	}
}
