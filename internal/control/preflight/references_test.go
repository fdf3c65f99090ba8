package preflight

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/transform/lens"
	"dbcontroller.dev/upgradestate"
)

const usersLens = `kinds: {from: users, to: users}
key: {from: "users/{u}", to: "orgs/o/users/{u}"}
operations: []
`

// TestPlanOfReferences: who refers to what gets other keys, and whether the keys that are
// written to references are served.
func TestPlanOfReferences(t *testing.T) {
	t.Parallel()
	users, err := lens.Parse("users.yaml", []byte(usersLens))
	if err != nil {
		t.Fatal(err)
	}
	orders := ordersSpec(t, ordersLens)
	invoices, err := lens.Parse("bills.yaml", []byte("lens: 1\noperations: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	orders.Imports = []transform.Import{{Service: "accounts", Kind: "people", From: "orders", Field: "payer", Keys: transform.NewKeys}}
	r := transform.NewRegistry("shop")
	if err := r.Add("v1", "v2", orders, users.Spec("", ""), invoices.Spec("bills", "invoices")); err != nil {
		t.Fatal(err)
	}
	task := func(name, version string, keys transform.Keys) transform.Task {
		return transform.Task{Name: name, Version: version, Kind: "orders", Func: func(record.Record) (bson.Raw, error) { return nil, nil },
			Imports: []transform.Import{{Service: "accounts", Kind: "people", From: "orders", Field: "rows.*.by", Keys: keys}}}
	}
	follows := func(name, version, kind string, keys transform.Keys) transform.Task {
		t := task(name, version, keys)
		t.Kind, t.Follow = kind, true
		return t
	}
	if err := r.AddTasks(follows("there", "v1", "orders", transform.NewKeys), follows("back", "v1", "orders", transform.OldKeys), follows("once", "v2", "orders", transform.NewKeys)); err != nil {
		t.Fatal(err)
	}
	if err := r.AddTasks(task("new", "v1", transform.NewKeys), task("old", "v2", transform.OldKeys), task("both", "v1", transform.BothKeys), task("other", "v9", transform.NewKeys)); err != nil {
		t.Fatal(err)
	}
	imports := []Import{{Service: "accounts", Deployment: "services/accounts/deployments/d", Older: "v3", Newer: "v4"}}
	refers := func(of string) []Referrer {
		return []Referrer{{Deployment: "services/bills/deployments/d", Kind: "bills", Field: "user", Of: of}}
	}
	serving := func(version string) upgradestate.Deployment {
		return upgradestate.Deployment{CurrentVersion: version + "@b", History: []upgradestate.Entry{
			{What: "update", Detail: "payers over bills", Outcome: "done; 3 seen, 3 changed"}, {What: "update", Detail: "else over others", Outcome: "done"}, {What: "update", Detail: "again over bills"},
		}}
	}
	const warns, ok = pb.PlanCheck_WARNING, pb.PlanCheck_OK
	for name, tc := range map[string]struct {
		from, to  string
		imports   []Import
		referrers []Referrer
		other     upgradestate.Deployment
		err       error
		alone     bool
		want      map[string]pb.PlanCheck_Verdict
	}{
		"keys that change": {"v1", "v2", imports, refers("users"), serving("v3"), nil, false, map[string]pb.PlanCheck_Verdict{
			"services/bills/deployments/d refers to users, whose keys change: after the switch run a data update there with references: new, unless one follows by itself (updates[].follow), or hold both keys before it; its latest data update of bills is payers: done; 3 seen, 3 changed": warns,
			"the upgrade writes new keys of people of services/accounts/deployments/d, those of v4, which serves v3: until its switch these keys find nothing":                                                                                                                                 warns,
			"data update new of v1 leaves new keys of people of services/accounts/deployments/d, those of v4, which serves v3":                                                                                                                                                                 warns,
			"data update old of v2 leaves old keys of people of services/accounts/deployments/d, those of v3, which serves v3":                                                                                                                                                                 ok,
			"data update both of v1 leaves both keys of people of services/accounts/deployments/d, which serves v3":                                                                                                                                                                            ok,
			"data update there of v1 begins by itself after each switch of services/accounts/deployments/d to v4":                                                                                                                                                                              ok,
			"data update back of v1 begins by itself after each switch of services/accounts/deployments/d to v3":                                                                                                                                                                               ok,
			"data update once of v2 begins by itself after each switch of services/accounts/deployments/d to v4, and none begins by itself after the switch back: add one, or run it by hand then":                                                                                             warns,
		}},
		"back": {"v2", "v1", imports, refers("users"), serving("v4"), nil, false, map[string]pb.PlanCheck_Verdict{
			"with references: old, unless one follows by itself":                                                     warns,
			"the upgrade writes old keys of people of services/accounts/deployments/d, those of v3, which serves v4": warns,
			"data update new of v1 leaves":                                                                           ok, "data update old of v2 leaves": warns, "data update both of v1 leaves": ok,
		}},
		"keys that stay":     {"v1", "v2", nil, refers("orders"), serving("v3"), nil, false, map[string]pb.PlanCheck_Verdict{"refers to orders: the keys of orders do not change": ok}},
		"by a new name":      {"v1", "v2", nil, refers("invoices"), serving("v3"), nil, false, map[string]pb.PlanCheck_Verdict{"refers to invoices: the keys of invoices do not change": ok}},
		"by a former name":   {"v2", "v1", nil, refers("bills"), serving("v3"), nil, false, map[string]pb.PlanCheck_Verdict{"refers to bills: the keys of bills do not change": ok}},
		"no such kind":       {"v1", "v2", nil, refers("user"), serving("v3"), nil, false, map[string]pb.PlanCheck_Verdict{"refers to user, and neither version has such a kind: correct referrers": warns}},
		"import not told":    {"v1", "v2", nil, nil, serving("v3"), nil, false, map[string]pb.PlanCheck_Verdict{"the upgrade writes new keys of people of accounts: name that deployment in imports": warns, "data update there of v1 follows no switch: name the deployment of accounts in imports": warns}},
		"a third version":    {"v1", "v2", imports, nil, serving("v5"), nil, false, map[string]pb.PlanCheck_Verdict{"after each switch of services/accounts/deployments/d to v4, which serves v5 now: correct versions in imports, which are [v3, v4]": warns}},
		"nothing is known":   {"v1", "v2", imports, refers("users"), upgradestate.Deployment{}, errors.New("there is none"), false, map[string]pb.PlanCheck_Verdict{"data update there of v1 begins by itself after each switch of services/accounts/deployments/d to v4: there is none": warns, "hold both keys before it; there is none": warns, "the upgrade writes new keys of people of services/accounts/deployments/d, those of v4: there is none": warns}},
		"without controller": {"v1", "v2", imports, refers("users"), serving("v4"), nil, true, map[string]pb.PlanCheck_Verdict{"hold both keys before it; a plan without a controller does not read its record": warns}},
		"an update runs": {"v1", "v2", nil, refers("users"), upgradestate.Deployment{Update: &upgradestate.Update{Name: "payers", Kind: "bills"}}, nil, false, map[string]pb.PlanCheck_Verdict{
			"its data update payers runs": warns}},
		"never updated": {"v1", "v2", nil, refers("users"), upgradestate.Deployment{}, nil, false, map[string]pb.PlanCheck_Verdict{"it has not run a data update of bills lately": warns}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := r.Direction(tc.from, tc.to)
			if err != nil {
				t.Fatal(err)
			}
			p := &plan{report: &pb.PlanReport{}, dir: dir, Planner: &Planner{PlannerParts: PlannerParts{
				Proofs: Proofs{Registry: r}, Settings: Settings{Imports: tc.imports, Referrers: tc.referrers}, ReadOnly: tc.alone,
				Other: func(_ context.Context, name string) (upgradestate.Deployment, error) { return tc.other, tc.err },
			}}}
			if err := p.references(t.Context()); err != nil {
				t.Fatal(err)
			}
			for text, verdict := range tc.want {
				found := false
				for _, c := range p.report.Checks {
					found = found || strings.Contains(c.Text, text) && c.Verdict == verdict
				}
				if !found {
					t.Errorf("it does not say %q with %s: %v", text, verdict, p.report.Checks)
				}
			}
			for _, c := range p.report.Checks {
				if strings.Contains(c.Text, "other of v9") || c.Subject != "bills.user" && c.Subject != "orders.payer" && c.Subject != "orders.rows.*.by" {
					t.Errorf("it says %v", c)
				}
			}
		})
	}
}
