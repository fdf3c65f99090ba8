package verify_test

import (
	"slices"
	"testing"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/verify"
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
