package docs_test

import (
	"errors"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

	"dbcontroller.dev/refusal"
)

// reasonRow is a row of the table of reasons.
var reasonRow = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| ([a-z_]+) \\| ([0-9]+) \\|")

// TestReasonsAreListed compares the table of errors.md with the reasons that there are, with
// their codes and what plain HTTP makes of them.
func TestReasonsAreListed(t *testing.T) {
	t.Parallel()
	rows := reasonRow.FindAllStringSubmatch(read(t, "errors.md"), -1)
	reasons := refusal.Reasons()
	if len(rows) != len(reasons) {
		t.Errorf("errors.md lists %d reasons, and there are %d", len(rows), len(reasons))
	}
	for i, r := range reasons {
		w := httptest.NewRecorder()
		refusal.Write(w, httptest.NewRequest("GET", "/", nil), refusal.New(r, errors.New("refused")))
		if i >= len(rows) || rows[i][1] != string(r) || rows[i][2] != r.Code().String() || rows[i][3] != strconv.Itoa(w.Code) {
			t.Errorf("errors.md has no row %d: %s, %s, %d", i+1, r, r.Code(), w.Code)
		}
	}
}
