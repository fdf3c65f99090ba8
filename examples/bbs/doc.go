// Package bbs is the first sample service: the database server of a container scheduler, in two
// versions that differ in more than field names.
//
// v1 has one record for each process: a DesiredLRP that contains its definition. v2 has an
// LRPDeployment for each process, and a separate record for each definition; one of them is active.
// One v1 record thus becomes 1 + N records. Both versions store the instances of a process, as
// clients and cells see them: one record for each definition at each index. An id that is the guid
// of the process is left out of keys, and of all v1 records.
//
//	v1  desired_lrps     <guid>       {..., definition_id, definition: {...}}
//	    actual_lrps      processes/<guid>/instances/<index>[@<id>]  {definition_id, instance: {state, cell_id, ...}, evacuating: {...}}
//	    cells            <cell>       {seen_ms, rep_url}
//	    tasks            <guid>       {state, cell_id, ...}
//	v2  lrp_deployments  <guid>       {..., active_definition_id, healthy_definition_id, former_definition_ids}
//	    definitions      <guid>/<id>  {process_guid, definition_id, definition: {...}}
//	    actual_lrps      as in v1, always with definition_id
//	    cells            as in v1
//	    tasks            as in v1, by a lens (package task)
//
// A group is a set of records that are migrated together. All records of a process are one group,
// including its instances, because they tell which definitions are still in use and which one was
// proven. Up promotes: if v1 names no definition, the process guid becomes the id of the only one.
// Promotion sets the healthy definition only if an instance of it is RUNNING. Down projects: v1 sees
// the active definition. Projection after promotion is the identity. Promotion over existing v2 data
// keeps the other definitions and the healthy one. If v1 has replaced its definition meanwhile, that
// has the effect of v2's update. Promotion keeps nothing if v1 has deleted and recreated the process
// meanwhile. The epoch of the modification tag shows that.
//
// Each version serves its own data by a resource.Table and by a few methods of its own (v1.go and
// v2.go, actualv1.go and actualv2.go). v2's definitions are parts of its table, and the
// modification tag is the revision of both tables. The middleware of apiversion serves v1 over v2
// data: overv2.go and actualover.go pair the methods and convert the messages. While v1 is active,
// v2 is read-only.
//
// One reconciler (controller.go) maintains the instances of both versions. It is a background
// controller with a leader. Package converge makes its decisions, and knows neither messages nor
// records. A switch ends its run, and the other version's reconciler continues from its own data.
// Cells are ordinary clients of the API (package cell simulates them). A cell owns the instances
// that carry its guid and stops all others. A process has at most 100 instances.
//
// If an instance is to stop, the reconciler also calls the stop endpoint that its cell reports
// (package outbound), so that the cell need not poll first. The mark in the record decides: if the
// call is lost, the cell stops the instance at its next poll. Package task has tasks, which run once,
// with their own controller.
//
// A request about an instance may leave out the definition. It then means the active one, or another
// one if that has no instance at the index (actualname.go). So clients that know guid and index only
// work as before. Over v1 data, an update with a definition replaces the definition that was there.
// These data cannot start the former one again, so an instance that crashes during the rollout starts
// with the new one, and there is no fall-back.
//
// Over v2 data, v1 clients cannot filter or order by the definition or its id. The result would depend on
// which definition is active, and v2's API cannot express that. The service refuses such a request
// and names the field. All other v1 requests, including masks on the definition, work the same over
// either version's data.
//
// To build a service with a transformer in Go, copy this folder. Then write the two messages, the
// transformer and the two functions of overv2.go. If a lens can express the difference between your
// versions, copy examples/secrets instead. The tests come along: they run each v1 test over both
// versions of the data.
//
// The package does not know tokens, fences or switches; the vrunner.Store handles them.
//
// It is not for users and may change with any version.
package bbs

import (
	"dbcontroller.dev/examples/bbs/task"
	"dbcontroller.dev/transform"
)

// Service is the name under which the transformers are registered.
const Service = "bbs.example.com"

// Versions of the data and of the API.
const (
	V1 = "v1"
	V2 = "v2"
)

// Kinds of records.
const (
	KindDesiredLRPs = "desired_lrps"    // v1
	KindDeployments = "lrp_deployments" // v2
	KindDefinitions = "definitions"     // v2
	KindActualLRPs  = "actual_lrps"     // both
	KindCells       = "cells"           // both
	KindTasks       = task.Kind         // both
)

// Register adds the transformers between v1 and v2.
func Register(r *transform.Registry) error { return r.Add(V1, V2, Specs()...) }
