// Package cell simulates the cells of a container scheduler. Cells are clients of the v1 API: they
// claim instances, run them as entries of a map, and report on them. They know nothing of v2,
// switches or databases.
//
// A cell polls the service and does all missing work. Late or repeated information and failed calls
// therefore do no harm. It stops instances that the service does not know. If no cell crashes for a
// while, each desired instance runs on exactly one cell. Census checks that against the cells' own
// data. Begin to read at Cell.
//
// A cell also runs tasks, and Handler is its stop endpoint: the service asks it to stop an instance
// or a task, and need not wait for the next poll.
//
// It is not for users and may change with any version.
package cell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	"dbcontroller.dev/gen/bbs/v1/bbsv1connect"
)

// FailingPath is the path of an action that exits at once on any cell. With arguments it does so at
// the indexes that they name, and runs at all others.
const FailingPath = "/bin/false"

// Config configures a cell.
type Config struct {
	ID        string
	Instances bbsv1connect.ActualLRPServiceClient
	Processes bbsv1connect.DesiredLRPServiceClient
	Tasks     bbsv1connect.TaskServiceClient // nil: the cell runs no tasks
	Every     time.Duration                  // interval between two polls
	Room      int                            // most instances at a time, and most tasks
	RepURL    string                         // where clients reach Handler; empty: nobody serves it
}

// Cell is one simulated cell. Its methods may be called concurrently.
type Cell struct {
	cfg Config

	mu         sync.Mutex
	runs       map[string]Container // key: name of the index and guid of the instance
	tasks      map[string]*work     // by guid
	wake       chan struct{}        // makes Run poll at once
	starts     int
	evacuating bool
	empty      chan struct{}
	trouble    error // error of the last poll
}

// Container is an instance that a cell runs.
type Container struct {
	Name, GUID string // of its index, and of the instance
	Definition string // id of the instance's definition
	LogGUID    string // of the instance's definition
}

// New returns a cell that runs nothing yet.
func New(cfg Config) *Cell {
	return &Cell{cfg: cfg, runs: map[string]Container{}, tasks: map[string]*work{}, wake: make(chan struct{}, 1), empty: make(chan struct{})}
}

// Run polls until ctx ends. The end simulates a crash: all instances end, and the service gets no
// report. The cell can be run again.
func (c *Cell) Run(ctx context.Context) {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		// A crash ends the instances. After a restart the cell must report them as crashed.
		clear(c.runs)
		clear(c.tasks)
	}()
	for ctx.Err() == nil {
		err := c.look(ctx)
		c.mu.Lock()
		// An error caused by the crash itself is no trouble worth a report.
		if ctx.Err() == nil {
			c.trouble = err
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-c.wake:
		}
	}
}

// Evacuate makes the cell hand over its instances and waits until it is empty. The cell accepts no
// instance from then on.
func (c *Cell) Evacuate(ctx context.Context) error {
	c.mu.Lock()
	c.evacuating = true
	c.mu.Unlock()
	select {
	case <-c.empty:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return fmt.Errorf("cell %s still runs %d: %w", c.cfg.ID, len(c.runs), errors.Join(ctx.Err(), c.trouble))
	}
}

// Runs returns the cell's current containers, in no particular order.
func (c *Cell) Runs() []Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.runs))
}

// Census returns the containers of several cells, by index. While a definition is replaced, an index
// can have one of each definition.
func Census(cells ...*Cell) map[string][]Container {
	out := map[string][]Container{}
	for _, c := range cells {
		for _, run := range c.Runs() {
			out[run.Name] = append(out[run.Name], run)
		}
	}
	return out
}

// Trouble returns the error of the cell's last poll, or nil.
func (c *Cell) Trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble
}

// look does all outstanding work once.
func (c *Cell) look(ctx context.Context) error {
	// Without a regular report the service takes the cell for lost.
	if _, err := c.cfg.Instances.ReportCell(ctx, connect.NewRequest(&bbsv1.ReportCellRequest{CellId: c.cfg.ID, RepUrl: c.cfg.RepURL})); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	groups, err := c.groups(ctx)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	// An instance that moved to another cell stops before this cell takes new ones.
	c.stopUnknown(groups)
	var errs []error
	// One failed call must not keep the cell from its other instances.
	for _, g := range groups {
		for _, i := range []*bbsv1.ActualLRP{g.Instance, g.Evacuating} {
			if i.GetCellId() == c.cfg.ID {
				errs = append(errs, c.tend(ctx, g, i))
			}
		}
		if g.Instance.GetState() == string(converge.Unclaimed) && c.hasRoom() {
			errs = append(errs, c.take(ctx, g))
		}
	}
	if c.cfg.Tasks != nil {
		errs = append(errs, c.lookAtTasks(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evacuating && len(c.runs) == 0 {
		select {
		case <-c.empty:
		default:
			close(c.empty)
		}
	}
	return nil
}

// groups lists the groups with an instance on this cell, or with one to claim.
func (c *Cell) groups(ctx context.Context) ([]*bbsv1.ActualLRPGroup, error) {
	var out []*bbsv1.ActualLRPGroup
	filter := fmt.Sprintf("instance.cell_id == %q || evacuating.cell_id == %q || instance.state == %q", c.cfg.ID, c.cfg.ID, converge.Unclaimed)
	for page := ""; ; {
		res, err := c.cfg.Instances.ListActualLRPGroups(ctx, connect.NewRequest(&bbsv1.ListActualLRPGroupsRequest{Filter: filter, PageSize: 500, PageToken: page}))
		if err != nil {
			return nil, err
		}
		out = append(out, res.Msg.GetActualLrpGroups()...)
		if page = res.Msg.GetNextPageToken(); page == "" {
			return out, nil
		}
	}
}

// stopUnknown stops instances that the service no longer assigns to this cell.
func (c *Cell) stopUnknown(groups []*bbsv1.ActualLRPGroup) {
	known := map[string]bool{}
	for _, g := range groups {
		for _, i := range []*bbsv1.ActualLRP{g.Instance, g.Evacuating} {
			if i.GetCellId() == c.cfg.ID {
				known[key(indexName(g), i.InstanceGuid)] = true
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.runs, func(k string, _ Container) bool { return !known[k] })
}

// indexName returns the name of a group without its definition.
func indexName(g *bbsv1.ActualLRPGroup) string {
	return converge.IndexName(g.ProcessGuid, int(g.Index))
}

// definitionOf returns the id of a group's definition. With it, a report is about this group only.
func definitionOf(g *bbsv1.ActualLRPGroup) string {
	if g.DefinitionId != nil {
		return *g.DefinitionId
	}
	return g.ProcessGuid
}

func key(name, guid string) string { return name + " " + guid }

// tend does the next step for an instance of this cell.
func (c *Cell) tend(ctx context.Context, g *bbsv1.ActualLRPGroup, i *bbsv1.ActualLRP) error {
	c.mu.Lock()
	runs, known := c.runs[key(indexName(g), i.InstanceGuid)]
	evacuating := c.evacuating
	c.mu.Unlock()
	var err error
	switch {
	// The container stops first: a removed instance must not run on. The stop endpoint may have
	// stopped it already.
	case i.Retire:
		c.stop(indexName(g), i.InstanceGuid)
		_, err = c.cfg.Instances.RemoveActualLRP(ctx, connect.NewRequest(&bbsv1.RemoveActualLRPRequest{
			Name: g.Name, InstanceGuid: i.InstanceGuid, CellId: c.cfg.ID, DefinitionId: definitionOf(g),
		}))
	case !known && i.State == string(converge.Claimed):
		// The response to the claim was lost, or the start failed.
		_, err = c.cfg.Instances.RemoveActualLRP(ctx, connect.NewRequest(&bbsv1.RemoveActualLRPRequest{
			Name: g.Name, InstanceGuid: i.InstanceGuid, CellId: c.cfg.ID, DefinitionId: definitionOf(g),
		}))
	case !known:
		// The cell crashed after it had started the instance.
		_, err = c.cfg.Instances.CrashActualLRP(ctx, connect.NewRequest(&bbsv1.CrashActualLRPRequest{
			Name: g.Name, InstanceGuid: i.InstanceGuid, CellId: c.cfg.ID, DefinitionId: definitionOf(g), CrashReason: "the cell does not run it",
		}))
	case i.State == string(converge.Claimed):
		err = c.start(ctx, runs)
	case evacuating && i == g.Instance:
		_, err = c.cfg.Instances.EvacuateActualLRP(ctx, connect.NewRequest(&bbsv1.EvacuateActualLRPRequest{
			Name: g.Name, InstanceGuid: i.InstanceGuid, CellId: c.cfg.ID, DefinitionId: definitionOf(g),
		}))
	}
	return notLate(err)
}

// notLate drops errors that mean that another writer was faster. The next poll shows the result.
func notLate(err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeFailedPrecondition, connect.CodeAborted, connect.CodeNotFound:
		return nil
	default:
		return err
	}
}

func (c *Cell) stop(name, guid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, key(name, guid))
}

func (c *Cell) hasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.evacuating && len(c.runs) < c.cfg.Room
}

// take claims an instance and starts it.
func (c *Cell) take(ctx context.Context, g *bbsv1.ActualLRPGroup) error {
	c.mu.Lock()
	// A fresh guid for each attempt keeps a late response from matching a newer claim.
	c.starts++
	run := Container{Name: indexName(g), Definition: definitionOf(g), GUID: fmt.Sprintf("%s-%s-%d", c.cfg.ID, g.Instance.Placement, c.starts)}
	c.mu.Unlock()
	if _, err := c.cfg.Instances.ClaimActualLRP(ctx, connect.NewRequest(&bbsv1.ClaimActualLRPRequest{Name: run.Name, InstanceGuid: run.GUID, CellId: c.cfg.ID, DefinitionId: run.Definition})); err != nil {
		return notLate(err)
	}
	return notLate(c.start(ctx, run))
}

// start runs a claimed instance with its definition, which is not the active one if the instance
// starts again during a rollout.
func (c *Cell) start(ctx context.Context, run Container) error {
	guid, k, err := converge.SplitName(run.Name)
	if err != nil {
		return err
	}
	p, err := c.cfg.Processes.GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: guid, DefinitionId: run.Definition}))
	if err != nil {
		return err
	}
	action := p.Msg.GetDesiredLrp().GetDefinition().GetAction()
	if action.GetPath() == FailingPath && (len(action.GetArgs()) == 0 || slices.Contains(action.GetArgs(), strconv.Itoa(k.Index))) {
		_, err := c.cfg.Instances.CrashActualLRP(ctx, connect.NewRequest(&bbsv1.CrashActualLRPRequest{
			Name: run.Name, InstanceGuid: run.GUID, CellId: c.cfg.ID, CrashReason: "exit status 1", DefinitionId: run.Definition,
		}))
		return err
	}
	run.LogGUID = p.Msg.GetDesiredLrp().GetDefinition().GetLogGuid()
	// A crash clears runs. A start that was under way must not add to it afterwards.
	c.mu.Lock()
	if ctx.Err() == nil {
		c.runs[key(run.Name, run.GUID)] = run
	}
	c.mu.Unlock()
	_, err = c.cfg.Instances.StartActualLRP(ctx, connect.NewRequest(&bbsv1.StartActualLRPRequest{Name: run.Name, InstanceGuid: run.GUID, CellId: c.cfg.ID, DefinitionId: run.Definition}))
	switch connect.CodeOf(err) {
	// On any other error the outcome is unknown, and the next poll finds out.
	case connect.CodeFailedPrecondition, connect.CodeNotFound:
		c.stop(run.Name, run.GUID) // another cell has it by now
	}
	return err
}
