package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"dbcontroller.dev/gen/dbcontroller/v1/dbcontrollerv1connect"
)

// Row is the requirement of one path.
type Row struct {
	// Least is the weakest role that may call the path.
	Least Role
	// Changes means that the call changes something or loads the databases. The audit records it.
	Changes bool
}

// Table holds the row of each path. A key is a complete path, or a prefix that ends with a slash;
// the longest match counts. A path without a row is refused.
type Table map[string]Row

// Row returns the row of a path; false if there is none.
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

// With returns the table with further rows. It panics if a path already has a row, which is a
// programming error.
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

// Only returns the rows with one of the roles.
func (t Table) Only(roles ...Role) Table {
	some := Table{}
	for path, row := range t {
		if slices.Contains(roles, row.Least) {
			some[path] = row
		}
	}
	return some
}

// Calls is the table of the Deployment API. docs/security.md contains it, too.
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
	dbcontrollerv1connect.DeploymentServiceTryTransformProcedure:    {Viewer, false}, // of a record that the caller has
	dbcontrollerv1connect.DeploymentServiceGetSizesProcedure:        {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceListSamplesProcedure:     {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceGetRolloutProcedure:      {Viewer, false},
	dbcontrollerv1connect.DeploymentServiceListRolloutsProcedure:    {Viewer, false},

	dbcontrollerv1connect.DeploymentServiceCreateDeploymentProcedure: {Operator, true},
	dbcontrollerv1connect.DeploymentServiceRemoveDeploymentProcedure: {Operator, true},
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
	dbcontrollerv1connect.DeploymentServiceBeginRolloutProcedure:     {Operator, true},
	dbcontrollerv1connect.DeploymentServiceChangeRolloutProcedure:    {Operator, true},
	dbcontrollerv1connect.DeploymentServiceForgetRolloutProcedure:    {Operator, true},

	// These change no record, but they read whole databases or run trials in them.
	dbcontrollerv1connect.DeploymentServicePlanProcedure:         {Operator, true},
	dbcontrollerv1connect.DeploymentServiceStreamPlanProcedure:   {Operator, true},
	dbcontrollerv1connect.DeploymentServiceRehearseProcedure:     {Operator, true},
	dbcontrollerv1connect.DeploymentServiceEstimateLossProcedure: {Operator, true},
	dbcontrollerv1connect.DeploymentServiceVerifyProcedure:       {Operator, true},
	// It shows values of a record, so the audit log names who has seen one.
	dbcontrollerv1connect.DeploymentServiceSampleRecordProcedure: {Operator, true},
}

// Health is the table for probes and Prometheus.
var Health = Table{
	"/healthz": {Least: Anyone},
	"/readyz":  {Least: Anyone}, // only viewers see the reason
	"/metrics": {Least: Viewer},
}

// Profiles is the table for pprof. Symbols, traces and heaps reveal memory content, so only
// operators may read them.
var Profiles = Table{"/debug/pprof/": {Least: Operator}}
