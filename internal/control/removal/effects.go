package removal

import (
	"context"
	"fmt"

	"dbcontroller.dev/internal/control/deployment"
)

// Effects describes a removal before it begins: what it will do, and what stays.
func (w Work) Effects(ctx context.Context, r deployment.Removal) (does, stays []string, err error) {
	if err := w.knownLost(r.Record); err != nil {
		return nil, nil, err
	}
	for _, ns := range r.Record.Namespaces {
		if w.lost(ns.Version) {
			stays = append(stays, fmt.Sprintf("everything in %s, the database of %s, which is lost", ns.Location, ns.Version))
			continue
		}
		db, gone, err := w.database(ctx, r, ns)
		if err != nil {
			return nil, nil, err
		}
		if gone {
			continue
		}
		for _, k := range ns.Kinds {
			if !affects(r, ns, k) {
				continue
			}
			name, err := locate(ctx, db, k)
			if err != nil {
				return nil, nil, err
			}
			switch what := fmt.Sprintf("collection %s (%s of %s) in %s", name, k.Kind, ns.Version, ns.Location); {
			case name == "":
			case drops(r, ns, k):
				does = append(does, "drop "+what)
			case copied(r.Record, ns):
				stays = append(stays, what+", a copy that no client has used; --drop-copies drops it")
			default:
				stays = append(stays, what)
			}
			does = append(does, fmt.Sprintf("delete guards, notes and claims of kind %s in %s", k.Kind, ns.Location))
		}
		if len(r.Kinds) == 0 {
			does = append(does, fmt.Sprintf("delete the marks of %s in %s, and what controllers keep there if no other deployment uses it", ns.Version, ns.Location))
		}
	}
	if len(r.Kinds) > 0 {
		return append(does, "take the kinds out of the record"), stays, nil
	}
	return append(does, fmt.Sprintf("delete all keys of %s in etcd, with its history", r.Record.Name)), stays, nil
}
