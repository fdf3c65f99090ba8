package preflight

import (
	"context"
	"fmt"
	"slices"

	"dbcontroller.dev/record"
	"dbcontroller.dev/transform"
	"dbcontroller.dev/upgradestate"
)

// references checks references from other deployments to records with changing keys, and references
// of this deployment to others.
func (p *plan) references(ctx context.Context) error {
	for _, r := range p.Settings.Referrers {
		p.referrer(ctx, r)
	}
	for _, i := range p.Registry.Imports(upgradestate.APIVersion(p.dir.From()), upgradestate.APIVersion(p.dir.To())) {
		p.imported(ctx, i, "the upgrade writes")
	}
	for _, t := range p.Registry.Tasks() {
		if v := upgradestate.APIVersion(p.dir.From()); t.Version != v && t.Version != upgradestate.APIVersion(p.dir.To()) {
			continue
		}
		if t.Follow {
			p.follower(ctx, t)
			continue
		}
		for _, i := range t.Imports {
			p.imported(ctx, i, fmt.Sprintf("data update %s of %s leaves", t.Name, t.Version))
		}
	}
	// A record that cannot be read is a finding; only the plan's own end is an error.
	return ctx.Err()
}

// referrer reports the effect on a reference from another deployment.
func (p *plan) referrer(ctx context.Context, r Referrer) {
	const area = "referrers"
	subject := r.Kind + "." + r.Field
	known, stays := p.keysOf(r.Of)
	switch {
	case !known:
		p.warn(area, subject, "%s refers to %s, and neither version has such a kind: correct referrers", r.Deployment, r.Of)
		return
	case stays:
		p.ok(area, subject, "%s refers to %s: the keys of %[2]s do not change", r.Deployment, r.Of)
		return
	}
	keys := transform.NewKeys
	// A rollback returns to the older keys.
	if p.Registry.Older(upgradestate.APIVersion(p.dir.To()), upgradestate.APIVersion(p.dir.From())) {
		keys = transform.OldKeys
	}
	p.warn(area, subject, "%s refers to %s, whose keys change: after the switch run a data update there with references: %s, unless one follows by itself (updates[].follow), or hold both keys before it; %s", r.Deployment, r.Of, keys, p.updated(ctx, r))
}

// keysOf reports whether one of the versions has a kind of this name, and whether its records keep
// their keys. If both versions have the name, it means the source's kind.
func (p *plan) keysOf(name string) (known, stays bool) {
	for _, k := range p.dir.SourceKinds() {
		if k.Name == name {
			return true, p.dir.Twin(name) != ""
		}
	}
	for _, k := range p.dir.SourceKinds() {
		stays = stays || p.dir.Twin(k.Name) == name
	}
	return slices.ContainsFunc(p.dir.TargetKinds(), func(k record.KindSpec) bool { return k.Name == name }), stays
}

// updated describes the data updates of a referring kind.
func (p *plan) updated(ctx context.Context, r Referrer) string {
	d, err := p.elsewhere(ctx, r.Deployment)
	if err != nil {
		return err.Error()
	}
	if d.Update != nil && d.Update.Kind == r.Kind {
		return fmt.Sprintf("its data update %s runs", d.Update.Name)
	}
	// The history keeps the newest entry last.
	for _, e := range slices.Backward(d.History) {
		if name, of := e.Updated(); of == r.Kind && e.Outcome != "" {
			return fmt.Sprintf("its latest data update of %s is %s: %s", r.Kind, name, e.Outcome)
		}
	}
	return fmt.Sprintf("it has not run a data update of %s lately", r.Kind)
}

// follower reports which switches a data update follows by itself, whether the other deployment can
// make them, and whether another update follows them back.
func (p *plan) follower(ctx context.Context, t transform.Task) {
	const area = "imports"
	i := t.Imports[0]
	subject := i.From + "." + i.Field
	at := slices.IndexFunc(p.Settings.Imports, func(in Import) bool { return in.Service == i.Service })
	if at < 0 {
		p.warn(area, subject, "data update %s of %s follows no switch: name the deployment of %s in imports", t.Name, t.Version, i.Service)
		return
	}
	back := slices.ContainsFunc(p.Registry.Tasks(), func(o transform.Task) bool {
		return o.Follow && o.Version == t.Version && o.Kind == t.Kind && o.Imports[0].Service == i.Service && o.Imports[0].Keys != i.Keys
	})
	in := p.Settings.Imports[at]
	text := fmt.Sprintf("data update %s of %s begins by itself after each switch of %s to %s", t.Name, t.Version, in.Deployment, in.Version(i.Keys))
	d, err := p.elsewhere(ctx, in.Deployment)
	switch serves := upgradestate.APIVersion(d.CurrentVersion); {
	case err != nil:
		p.warn(area, subject, "%s: %v", text, err)
		return
	case serves != in.Older && serves != in.Newer:
		p.warn(area, subject, "%s, which serves %s now: correct versions in imports, which are [%s, %s]", text, serves, in.Older, in.Newer)
		return
	case !back:
		p.warn(area, subject, "%s, and none begins by itself after the switch back: add one, or run it by hand then", text)
		return
	}
	p.ok(area, subject, "%s", text)
}

// imported reports whether the other deployment already serves the keys that are written to
// references.
func (p *plan) imported(ctx context.Context, i transform.Import, writes string) {
	const area = "imports"
	subject := i.From + "." + i.Field
	at := slices.IndexFunc(p.Settings.Imports, func(in Import) bool { return in.Service == i.Service })
	if at < 0 {
		p.warn(area, subject, "%s %s keys of %s of %s: name that deployment in imports, so that controllers can check whether it serves them", writes, i.Keys, i.Kind, i.Service)
		return
	}
	// The keys are useful only if the other deployment serves the version that has them.
	in := p.Settings.Imports[at]
	want := in.Version(i.Keys)
	whose := fmt.Sprintf("%s keys of %s of %s", i.Keys, i.Kind, in.Deployment)
	if want != "" {
		whose += ", those of " + want
	}
	d, err := p.elsewhere(ctx, in.Deployment)
	switch serves := upgradestate.APIVersion(d.CurrentVersion); {
	case err != nil:
		p.warn(area, subject, "%s %s: %v", writes, whose, err)
	case want == "" || serves == want:
		p.ok(area, subject, "%s %s, which serves %s", writes, whose, serves)
	default:
		p.warn(area, subject, "%s %s, which serves %s: until its switch these keys find nothing", writes, whose, serves)
	}
}

// elsewhere reads the record of another deployment.
func (p *plan) elsewhere(ctx context.Context, name string) (upgradestate.Deployment, error) {
	if p.ReadOnly {
		return upgradestate.Deployment{}, fmt.Errorf("a plan without a controller does not read its record")
	}
	return p.Other(ctx, name)
}
