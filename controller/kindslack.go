package controller

import (
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// KindsLack says which kinds of the current version or of another one were removed from the
// configuration since they were made; "" if none were. Nobody syncs them, so a switch between the
// two would hold writes, wait for them until its deadline, and abort.
func (a *App) KindsLack(d upgradestate.Deployment, version string) string {
	var lack []string
	for _, v := range []string{d.CurrentVersion, version} {
		ns, _ := d.Namespace(v)
		configured := a.registry.Kinds(upgradestate.APIVersion(v))
		for _, k := range ns.Kinds {
			// The record of what belongs together is ours, and follows from the configuration.
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
	return fmt.Sprintf("the deployment has kinds that %s lacks (%s): the switch would wait for them and abort: put them back into kinds, and restart the controllers",
		a.cfg.File, strings.Join(lack, ", "))
}
