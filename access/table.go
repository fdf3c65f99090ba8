package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// Row is what one path needs.
type Row struct {
	Least Role
	// Changes: the call changes something, or costs the databases something. It is in the audit.
	Changes bool
}

// Table says for each path which role may call it: paths of procedures and of pages, or
// beginnings that end with a slash, of which the longest counts. What has no row is refused.
type Table map[string]Row

// Row is that of a path.
func (t Table) Row(path string) (Row, bool) {
	if row, ok := t[path]; ok {
		return row, true
	}
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if row, ok := t[path[:i+1]]; ok {
			return row, true
		}
	}
	return Row{}, false
}

// With is the table with further rows. A path that has a row already is a mistake.
func (t Table) With(more Table) Table {
	all := maps.Clone(t)
	for path, row := range more {
		if _, ok := all[path]; ok {
			panic(fmt.Sprintf("access: two rows for %s", path))
		}
		all[path] = row
	}
	return all
}

// Only is the table with the rows of some roles.
func (t Table) Only(roles ...Role) Table {
	some := Table{}
	for path, row := range t {
		if slices.Contains(roles, row.Least) {
			some[path] = row
		}
	}
	return some
}

// Calls is the Deployment API. docs/security.md has it, too.
var Calls = Table{
	dbcontrollerv1connect.DeploymentServiceRegisterClientProcedure:   {Application, true},
	dbcontrollerv1connect.DeploymentServiceDeregisterClientProcedure: {Application, true},
	dbcontrollerv1connect.DeploymentServiceAckHoldProcedure:          {Application, true},
	dbcontrollerv1connect.DeploymentServiceGetLocationProcedure:      {Application, false},

	dbcontrollerv1connect.DeploymentServiceGetDeploymentProcedure:   {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceListDeploymentsProcedure: {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceWatchDeploymentProcedure: {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceListParkedProcedure:      {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceListUpdatesProcedure:     {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceGetVersionProcedure:      {Viewer, false},

	dbcontrollerv1connect.DeploymentServiceCreateDeploymentProcedure: {Operator, true},
	dbcontrollerv1connect.DeploymentServiceBeginUpgradeProcedure:     {Operator, true},
	dbcontrollerv1connect.DeploymentServiceAbortUpgradeProcedure:     {Operator, true},
	dbcontrollerv1connect.DeploymentServiceSwitchProcedure:           {Operator, true},
	dbcontrollerv1connect.DeploymentServiceAcceptBreachesProcedure:   {Operator, true},
	dbcontrollerv1connect.DeploymentServiceRepairProcedure:           {Operator, true},
	dbcontrollerv1connect.DeploymentServiceDecideRestoredProcedure:   {Operator, true},
	dbcontrollerv1connect.DeploymentServiceSetPolicyProcedure:        {Operator, true},
	dbcontrollerv1connect.DeploymentServiceSetPaceProcedure:          {Operator, true},
	dbcontrollerv1connect.DeploymentServiceCompleteProcedure:         {Operator, true},
	dbcontrollerv1connect.DeploymentServiceBeginUpdateProcedure:      {Operator, true},
	dbcontrollerv1connect.DeploymentServiceCancelUpdateProcedure:     {Operator, true},
	dbcontrollerv1connect.DeploymentServiceWaiveParkedProcedure:      {Operator, true},
	dbcontrollerv1connect.DeploymentServiceWaiveKindProcedure:        {Operator, true},

	// These change no record, but read whole databases or try things in them.
	dbcontrollerv1connect.DeploymentServicePlanProcedure:         {Operator, true},
	dbcontrollerv1connect.DeploymentServiceStreamPlanProcedure:   {Operator, true},
	dbcontrollerv1connect.DeploymentServiceRehearseProcedure:     {Operator, true},
	dbcontrollerv1connect.DeploymentServiceEstimateLossProcedure: {Operator, true},
	dbcontrollerv1connect.DeploymentServiceVerifyProcedure:       {Operator, true},
}

// Health is what probes and Prometheus ask for.
var Health = Table{
	"/healthz": {Least: Anyone},
	"/readyz":  {Least: Anyone}, // why not is for viewers
	"/metrics": {Least: Viewer},
}

// Profiles is pprof. Symbols, traces and heaps tell what is in memory.
var Profiles = Table{"/debug/pprof/": {Least: Operator}}
