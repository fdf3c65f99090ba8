package fanout_test

import (
	"fmt"
	"strings"
	"testing"

	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens/internal/lenstest"
)

// TestMappingOfKeysAndReferences: requests follow keys and what refers to them.
func TestMappingOfKeysAndReferences(t *testing.T) {
	t.Parallel()
	ls, err := lenstest.Link(t, map[string]string{"users": lenstest.Users, "k": strings.Replace(lenstest.SecretsByLocation, "operations:", `operations:
  - reference: {field: owner, kind: users}
  - reference: {field: editors, kind: users, list: true}
  - reference: {field: by, kind: users, optional: true}
  - fanOut: {field: lines, as: list, kind: lines, key: "{_key}/{index}"}`, 1)})
	if err != nil {
		t.Fatal(err)
	}
	up, down := ls["k"].UpMapping(), ls["k"].DownMapping()
	names := ls["users"].UpMapping()
	if got, err := names.Name("users/ann"); err != nil || got != "orgs/acme/users/ann" {
		t.Errorf("name %q, %v", got, err)
	}
	if got, err := names.Parent("users"); err != nil || got != "orgs/acme/users" {
		t.Errorf("parent %q, %v", got, err)
	}
	if got, err := down.Name("projects/p/regions/eu/secrets/s"); err != nil || got != "projects/p/secrets/s" {
		t.Errorf("name %q, %v", got, err)
	}
	for _, path := range []string{"lines", "lines.sku", "location.region", "_id"} {
		if got, err := up.Field(path); err == nil {
			t.Errorf("field %s became %v", path, got)
		}
	}
	if got, err := up.Field("owner"); err != nil || fmt.Sprint(got) != "[owner]" {
		t.Errorf("field owner became %v, %v", got, err)
	}
	if got, err := up.Order("owner"); err == nil {
		t.Errorf("order owner became %v", got)
	}
	c := func(path string, op transform.Operator, values ...any) transform.Condition {
		return transform.Condition{Path: path, Op: op, Values: values}
	}
	const ann, annThere = "users/ann", "orgs/acme/users/ann"
	for _, tc := range []struct {
		in   transform.Condition
		want string // what it becomes, or a part of the error
	}{
		{c("owner", "==", ann), "[{owner == [orgs/acme/users/ann]}]"},
		{c("owner", "==", nil), "[{owner == [<nil>]}]"},
		{c("owner", "==", "ann"), "[{owner in []}]"},
		{c("owner", "==", 5), "[{owner in []}]"},
		{c("owner", "in", ann, "x", "users/bob"), "[{owner in [orgs/acme/users/ann orgs/acme/users/bob]}]"},
		{c("owner", "has"), "[{owner has []}]"},
		{c("owner", "startsWith", "users/a"), "[{owner startsWith [orgs/acme/users/a]}]"},
		{c("owner", "startsWith", "users/"), "[{owner startsWith [orgs/acme/users/]}]"},
		{c("owner", "startsWith", "us"), "end it with a slash"},
		{c("owner", "startsWith", 5), "which are strings"},
		{c("owner", "<", ann), "< cannot be applied to them"},
		{c("owner", "contains", "ann"), "contains cannot be applied to them"},
		{c("owner.x", "==", ann), "have no fields"},
		{c("editors", "contains", ann), "[{editors contains [orgs/acme/users/ann]}]"},
		{c("editors", "contains", "x"), "[{editors in []}]"},
		{c("editors", "==", ann), "[{editors in []}]"},
		{c("editors.*", "==", ann), "[{editors.* == [orgs/acme/users/ann]}]"},
		{c("by", "==", ann), "[{by == [orgs/acme/users/ann]}]"},
		{c("by", "in", "system", annThere, 5), "[{by in [system 5]}]"},
		{c("by", "startsWith", "users/"), "startsWith cannot be applied to them"},
		{c("other", "<", 5), "[{other < [5]}]"},
	} {
		out, err := up.Compare(tc.in)
		got := fmt.Sprint(out)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != tc.want || err != nil && !strings.Contains(got, tc.want) {
			t.Errorf("%v became %s, want %s", tc.in, got, tc.want)
		}
	}
	out, err := down.Compare(c("owner", "==", annThere))
	if err != nil || fmt.Sprint(out) != "[{owner == [users/ann]}]" {
		t.Errorf("down: %v, %v", out, err)
	}
	if !ls["users"].KeepsNameOrder("", true) || ls["k"].KeepsNameOrder("projects/p", true) {
		t.Error("order of names")
	}
	if from, to := ls["users"].KeyPatterns(); from.String() != "users/{user}" || to.String() != "orgs/{org}/users/{user}" {
		t.Errorf("patterns %s and %s", from, to)
	}
}
