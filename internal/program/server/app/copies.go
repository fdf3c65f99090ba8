package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/base/zaplog"
	"dbcontroller.dev/internal/control/deployment"
	"dbcontroller.dev/internal/coord"
	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/upgradestate"
	"dbcontroller.dev/vrunner"
)

// Copied declares what of a kind is copied from other regions.
type Copied struct {
	region.Kind
	Method protoreflect.MethodDescriptor // of the watch
	Read   func(proto.Message) (vrunner.Event, record.Record, error)
}

// Regions names this region and those whose copies it shows. The zero value has no copies.
type Regions struct {
	Name   string
	Others []string
}

// regions checks the configured regions.
func (a *App) regions() (Regions, error) {
	c := a.cfg.Regions
	if c.Name == "" {
		return Regions{}, nil
	}
	any := false
	for _, kinds := range a.service.Copied {
		any = any || len(kinds) > 0
	}
	if !any {
		return Regions{}, errors.New("regions: this program has no records of regions: set Regions in the Versions of dbcontroller.Service, or leave the section out")
	}
	here := Regions{Name: c.Name}
	for _, o := range c.Others {
		here.Others = append(here.Others, o.Name)
	}
	return here, nil
}

// regionCopies keeps the copies of other regions' records, in the namespaces of all versions that
// have collections for them. One server of the deployment does it at a time.
type regionCopies struct {
	cfg         config.Regions
	log         *zap.Logger
	lead        func(ctx context.Context, name string, work func(context.Context) error) error
	deployments *deployment.Store
	others      map[string]*otherRegion
	versions    map[string]*copiedVersion // by version of a namespace
	upgrades    waiting
}

// copiedVersion is the namespace of one version.
type copiedVersion struct {
	version string
	kinds   map[string]Copied
	space   *copySpace
	placed  atomic.Bool // the namespace was seen with all collections

	mu        sync.Mutex
	followers []follower // of this process; empty if another one leads
}

type follower struct {
	kind, region string
	*copies.Follower
}

// newCopies returns the copies of a configuration, or nil if there are none.
func (a *App) newCopies(store coord.Store, set *databases.Set, deployments *deployment.Store) (*regionCopies, error) {
	if a.cfg.Regions.Name == "" {
		return nil, nil //nolint:nilnil // the methods of nil do nothing
	}
	c := &regionCopies{cfg: a.cfg.Regions, log: a.log, lead: a.lead(store, deployments), deployments: deployments,
		others: map[string]*otherRegion{}, versions: map[string]*copiedVersion{}}
	for _, o := range c.cfg.Others {
		other, err := newOtherRegion(o, c.cfg.Name, regionPing, a.log)
		if err != nil {
			c.close()
			return nil, fmt.Errorf("regions: %s: %w", o.Name, err)
		}
		c.others[o.Name] = other
	}
	for _, db := range a.cfg.DBs {
		if kinds := a.service.Copied[upgradestate.APIVersion(db.Version)]; len(kinds) > 0 {
			space := &copySpace{places: places{version: db.Version, deployments: deployments}, client: set.Database(db.Version).Client()}
			c.versions[db.Version] = &copiedVersion{version: db.Version, kinds: kinds, space: space}
		}
	}
	return c, nil
}

// close closes the connections to other regions.
func (c *regionCopies) close() {
	if c != nil {
		for _, o := range c.others {
			o.close()
		}
	}
}

// run makes copies until ctx ends, whenever this server leads.
func (c *regionCopies) run(ctx context.Context) error {
	if err := c.lead(ctx, "copies", c.work); err != nil {
		return err
	}
	return ctx.Err()
}

// work makes copies while this server leads.
func (c *regionCopies) work(ctx context.Context) error {
	type running struct {
		id   string
		stop func()
	}
	work := map[string]running{}
	defer func() {
		for _, w := range work {
			w.stop()
		}
	}()
	for d := range c.deployments.Watch(ctx) {
		c.upgrades.note(d)
		for version, v := range c.versions {
			id := collectionsOf(d, version, v.collections())
			v.space.news(d)
			if w, on := work[version]; on && w.id == id {
				continue
			} else if on {
				// Other collections: the copies begin anew in them.
				w.stop()
				delete(work, version)
			}
			if id != "" {
				work[version] = running{id, v.start(ctx, c)}
			}
		}
	}
	return ctx.Err()
}

// collections returns the kinds that must exist before copies can be made.
func (v *copiedVersion) collections() []string {
	all := []string{region.StateKind}
	for kind := range v.kinds {
		all = append(all, region.CopiesKind(kind))
	}
	return all
}

// ready returns an error if the namespace of a version has no collections for copies: all reads of the
// copied kinds would fail.
func (c *regionCopies) ready(ctx context.Context, version string) error {
	if c == nil || c.versions[version] == nil || c.versions[version].placed.Load() {
		return nil
	}
	v := c.versions[version]
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	d, err := c.deployments.Get(ctx)
	if err != nil {
		return nil //nolint:nilerr // without etcd the server goes on with what it knows
	}
	if kind := unplaced(d, version, v.collections()); kind != "" {
		return fmt.Errorf("the namespace of %s has no collection %s for copies of other regions: update the controllers first, and not during an upgrade", version, kind)
	}
	v.placed.Store(true)
	return nil
}

// unplaced returns the first of these kinds that a namespace does not have, or "".
func unplaced(d upgradestate.Deployment, version string, kinds []string) string {
	ns, ok := d.Namespace(version)
	if !ok || len(ns.Kinds) == 0 {
		return "" // it is about to be created
	}
	for _, kind := range kinds {
		if _, ok := ns.Kind(kind); !ok {
			return kind
		}
	}
	return ""
}

// start follows all kinds of all regions until stop.
func (v *copiedVersion) start(ctx context.Context, c *regionCopies) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all []follower
	for _, kind := range slices.Sorted(maps.Keys(v.kinds)) {
		k := v.kinds[kind]
		for _, o := range c.cfg.Others {
			source := copies.NewOwner(c.others[o.Name].client, o.Endpoint, k.Method, k.Read)
			all = append(all, follower{kind, o.Name, copies.New(copies.Config{Kind: kind, Region: o.Name, Source: source, Space: v.space,
				Decl: k.Kind, Log: zaplog.New(c.log.With(zap.String("version", v.version)))})})
		}
	}
	v.set(all)
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := f.Run(ctx); err != nil && ctx.Err() == nil {
					c.log.Warn("copies begin again", zap.String("kind", f.kind), zap.String("region", f.region), zap.Error(err))
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
		v.set(nil)
	}
}

func (v *copiedVersion) set(all []follower) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.followers = all
}

// reports returns the state of the copies that this process makes.
func (v *copiedVersion) reports() (all []upgradestate.Copies) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.followers {
		r := f.Report()
		if !r.Known {
			continue // it is about to know
		}
		one := upgradestate.Copies{Version: v.version, Kind: f.kind, Region: f.region, Whole: r.Whole, Problem: problem(problems(r)), Both: r.Both}
		if !r.Away.IsZero() {
			one.Away = r.Away.UTC().Format(time.RFC3339)
		}
		all = append(all, one)
	}
	return all
}

// incomplete reports whether copies that this process makes were never complete, as far as it knows.
func (v *copiedVersion) incomplete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.followers, func(f follower) bool { return !f.Report().Whole })
}

// problems describes why copies do not follow, and those that are missing.
func problems(r copies.Report) string {
	if r.Left == 0 {
		return r.Problem
	}
	text := fmt.Sprintf("NOT COPIED: %d, such as %s", r.Left, r.Example)
	if r.Problem != "" {
		text += "; " + r.Problem
	}
	return text
}

// problem bounds a text of another process for the announcement.
func problem(text string) string {
	const most = 200
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ToValidUTF8(text, "")
}

// reporter returns the function that reports all copies, or nil.
func (c *regionCopies) reporter() func() []upgradestate.Copies {
	if c == nil {
		return nil
	}
	return func() (all []upgradestate.Copies) {
		for _, version := range slices.Sorted(maps.Keys(c.versions)) {
			all = append(all, c.versions[version].reports()...)
		}
		return all
	}
}

// prepares returns the versions whose copies are not complete yet, if a switch waits for them.
func (c *regionCopies) prepares() map[string]string {
	if c == nil || c.cfg.Wait == 0 {
		return nil
	}
	out := map[string]string{}
	for version, v := range c.versions {
		if v.incomplete() && !c.upgrades.waited(version, c.cfg.Wait) {
			out[version] = "copies of other regions"
		}
	}
	return out
}
