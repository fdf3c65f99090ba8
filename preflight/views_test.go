package preflight

import (
	"strings"
	"testing"

	"dbcontroller.dev/record"
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
