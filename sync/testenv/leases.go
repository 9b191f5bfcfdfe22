package testenv

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"limpet/sync/api"
)

// leaseCRD makes the server serve Leases, which it does not have by itself: they
// are the core of a Kubernetes, not its machinery. Grafana's API has none.
const leaseCRD = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: leases.coordination.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: coordination.k8s.io
  scope: Namespaced
  names: {kind: Lease, listKind: LeaseList, plural: leases, singular: lease}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                holderIdentity: {type: string}
                leaseDurationSeconds: {type: integer, format: int32}
                acquireTime: {type: string, format: date-time}
                renewTime: {type: string, format: date-time}
                leaseTransitions: {type: integer, format: int32}
`

// Leases are what a server with [Options].Leases serves too.
var Leases = schema.GroupVersionResource{Group: api.CoordinationGroup, Version: "v1", Resource: "leases"}
