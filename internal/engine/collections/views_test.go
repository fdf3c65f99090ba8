package collections

import (
	"context"
	"strings"
	"testing"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// TestViewsOver: views are found that read a name through others, and no other ones.
func TestViewsOver(t *testing.T) {
	t.Parallel()
	views := []record.View{
		{Name: "third", Reads: []string{"second"}},
		{Name: "first", Reads: []string{"lines", "orders"}},
		{Name: "second", Reads: []string{"first"}},
		{Name: "other", Reads: []string{"customers"}},
		{Name: "circle", Reads: []string{"circle"}},
	}
	if got := strings.Join(viewsOver(views, map[string]bool{"orders": true, "customers": false}), " "); got != "first second third" {
		t.Errorf("%s", got)
	}
}

// TestViewsMadeDuringAnUpgrade: a view that is made over a collection while it moves is named, until it
// is gone or the upgrade is.
func TestViewsMadeDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	w := newShapeWorldOf(t, func(s *transform.Spec) { s.Old.Kinds[0].Fixed = true })
	var views []record.View
	asked := 0
	w.keep.Views = func(_ context.Context, version string) ([]record.View, error) {
		if asked++; version != "v1" {
			t.Errorf("views of %s", version)
		}
		return views, nil
	}
	d := upgradestate.Deployment{CurrentVersion: "v1", Upgrade: &upgradestate.Upgrade{ID: "u", TargetVersion: "v2"}}
	look := func(want string) {
		t.Helper()
		if err := w.keep.lookAtViews(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if got := w.keep.ViewsLeft(d); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	look("")
	views = []record.View{{Name: "late", Reads: []string{shapeKind}}, {Name: "other", Reads: []string{"customers"}}}
	look("1 views read collections of the former version (late): they continue to show v1")
	views = nil
	look("")
	views = []record.View{{Name: "late", Reads: []string{shapeKind}}}
	look("late")
	was := asked
	d.Upgrade.State = upgradestate.Switching
	if look("late"); asked != was {
		t.Error("the database is asked during the switch")
	}
	d.Upgrade = nil
	if look(""); asked != was {
		t.Error("the database is asked while no upgrade runs")
	}
}
