package upgradestate

import (
	"fmt"
	"slices"
	"strings"
)

// Found is what a controller finds of a version before there is a deployment.
type Found struct {
	Version string
	// Disabled: it is not kept in sync, and nothing begins there unless it holds data.
	Disabled bool
	// Holds are the collections of applications that hold documents, and Empty those that
	// are there and hold none.
	Holds, Empty []string
}

// StartAt has a deployment in which nothing was ever made begin at another version: the one that
// was chosen first was a mistake, as where the configuration named a collection that is not there.
type StartAt struct{ Version string }

func (StartAt) event() {}

func (d *Deployment) startAt(e StartAt) error {
	switch {
	case len(d.Namespaces) > 0 || d.Upgrade != nil || d.LastSwitch != nil || len(d.Retired) > 0:
		return refused("start at %s: %s has lived, at version %s", e.Version, d.Name, d.CurrentVersion)
	case e.Version == "":
		return refused("start: no version is named")
	case e.Version == d.CurrentVersion:
		return nil
	}
	d.addEntry(Entry{What: "start-at", From: d.CurrentVersion, To: e.Version})
	d.CurrentVersion = e.Version
	return nil
}

// Initial decides at which version a deployment begins, of those configured, oldest first:
// at the one that holds applications' data; where none does, at the one that has their
// collections; and else at the newest that every server knows that is registered, for a
// service that begins has no use for its old versions. Of several places of that version the
// first is taken. Data of several versions is refused, for nothing says which of it is
// current: begun at the wrong one, the other's would be what an upgrade has to replace.
//
// configured, if it is not empty, decides alone.
func Initial(configured string, found []Found, servers []ServerState) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if len(found) == 0 {
		return "", refused("create: no version is configured: configure at least one")
	}
	var holding, having []Found
	for _, f := range found {
		if len(f.Holds) > 0 {
			holding = append(holding, f)
		}
		if len(f.Holds)+len(f.Empty) > 0 {
			having = append(having, f)
		}
	}
	switch {
	case len(holding) == 1:
		return holding[0].Version, nil
	case len(holding) > 1:
		var what []string
		for _, f := range holding {
			what = append(what, fmt.Sprintf("%s (%s)", f.Version, strings.Join(f.Holds, ", ")))
		}
		return "", refused("create: the databases of several versions hold documents, %s, and nothing says which is current: "+
			"name it with initialVersion in the configuration; what holds the others' names has to be renamed, or they need other databases",
			strings.Join(what, " and "))
	case len(having) == 1:
		return having[0].Version, nil
	}
	for i, f := range slices.Backward(found) {
		if f.Disabled || len(oldServers(servers, f.Version)) > 0 {
			continue
		}
		api := APIVersion(f.Version)
		first := slices.IndexFunc(found[:i+1], func(o Found) bool { return APIVersion(o.Version) == api && !o.Disabled })
		return found[first].Version, nil
	}
	return "", refused("create: no version is known to every server: %s", strings.Join(oldServers(servers, found[len(found)-1].Version), "; "))
}
