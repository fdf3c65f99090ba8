// Package bbs is the sample service: the database server of a container scheduler, in
// two versions that differ in more than field names.
//
// v1 has one record for each process, a DesiredLRP with its definition inside. v2 has an
// LRPDeployment for each process and every definition as a record of its own, one of
// them active: one v1 record becomes 1 + N records. Both have the instances of a process, as
// clients and cells see them; which definition one runs is v2's to know.
//
//	v1  desired_lrps     <guid>       {..., definition: {...}}
//	    actual_lrps      processes/<guid>/instances/<index>  {instance: {state, cell_id, ...}, evacuating: {...}}
//	    cells            <cell>       {seen_ms}
//	v2  lrp_deployments  <guid>       {..., active_definition_id, healthy_definition_id, former_definition_ids}
//	    definitions      <guid>/<id>  {process_guid, definition_id, definition: {...}}
//	    actual_lrps      as in v1, with a definition_id in instance and evacuating
//	    cells            as in v1
//
// All records of a process are one group, its instances included: what one that v1 has started
// runs is the definition that is active then. Up promotes: where v2 holds nothing, the
// process guid is the id of the only definition. Down projects: v1 sees the active
// definition. Projection after promotion is the identity, and promotion over what v2
// holds keeps other definitions, the healthy one and what each instance runs, unless v1 has
// deleted and made the process anew meanwhile, which the epoch of its modification tag tells.
//
// Each version's API over its own data is a resource.Table, and what it has beyond the
// standard methods (v1.go and v2.go, actualv1.go and actualv2.go); v2's definitions are the
// parts of its table, and the modification tag is the revision of both. v1 over v2 data is the
// middleware of apiversion: overv2.go and actualover.go pair the methods and turn the messages,
// and that is all there is of it. While v1 is active, v2 can be read and not written.
//
// The instances of both versions are kept by one reconciler (controller.go), a background
// controller with a leader, over a decision that knows neither messages nor records (package
// converge). A switch ends its run like that of any controller: the other version's begins with
// what it finds. Cells are clients of the API like any other (package cell simulates them): an
// instance is theirs by its guid, and what is not, they stop. A process has at most 100 instances.
//
// What v1 cannot ask of v2 data: filters and orders on its definition, for they would
// depend on which of a process's definitions is the active one, and v2's API cannot say
// that. Such a request is refused with the name of the field. Everything else that v1 can
// do, masks on the definition included, is the same over either data.
//
// To make a service of one's own with a transformer in Go: copy the folder, write the two
// messages, the transformer and the two functions of overv2.go. sample/secrets is the one
// to copy for a service whose versions differ by what a lens can say. The tests come
// along: they run every v1 test over both versions of the data.
//
// The package does not know tokens, fences or switches: the vrunner.Store does.
//
// It is not for users and may change with any version.
package bbs

import "dbcontroller.dev/transform"

// Service is the name under which the transformers are registered.
const Service = "bbs.example.com"

// Versions of the data and of the API.
const (
	V1 = "v1"
	V2 = "v2"
)

// Kinds.
const (
	KindDesiredLRPs = "desired_lrps"    // v1
	KindDeployments = "lrp_deployments" // v2
	KindDefinitions = "definitions"     // v2
	KindActualLRPs  = "actual_lrps"     // both
	KindCells       = "cells"           // both
)

// Register adds the transformers between v1 and v2.
func Register(r *transform.Registry) error { return r.Add(V1, V2, Specs()...) }
