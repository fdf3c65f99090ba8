package controller

import (
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// KindsLack lists the kinds of the current version and of another version that are no longer in the
// configuration; "" if there are none. No controller syncs such kinds. A switch would hold writes,
// wait for them until its deadline, and abort.
func (a *App) KindsLack(d upgradestate.Deployment, version string) string {
	var lack []string
	for _, v := range []string{d.CurrentVersion, version} {
		ns, _ := d.Namespace(v)
		configured := a.registry.Kinds(upgradestate.APIVersion(v))
		for _, k := range ns.Kinds {
			// The package creates lineage kinds itself; they are never listed in the configuration.
			if transform.IsLineage(k.Kind) {
				continue
			}
			if !slices.ContainsFunc(configured, func(s record.KindSpec) bool { return s.Name == k.Kind }) {
				lack = append(lack, k.Kind+" of "+v)
			}
		}
	}
	if len(lack) == 0 {
		return ""
	}
	return fmt.Sprintf("the deployment has kinds that %s lacks (%s), so the switch would wait for them and abort: add them to kinds again, and restart the controllers",
		a.cfg.File, strings.Join(lack, ", "))
}
