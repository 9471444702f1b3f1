"""Controllers as members of the cluster: they tell where they listen and what they support.

Raft knows its voters by itself. What is registered here answers those who ask for the cluster's
controllers, and keeps the cluster from levels of features that a controller doesn't support.
"""

from __future__ import annotations

from kraftpy.metadata.controller.registration_checks import (
    check_features,
    end_points,
    feature_ranges,
    invalid,
)
from kraftpy.metadata.controller.result import Caller, ControllerError, ControllerResult
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.features import CONTROLLER_REGISTRATION_LEVEL
from kraftpy.metadata.records import RegisterControllerRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

__all__ = ["ControllerRegistrations"]


class ControllerRegistrations:
    __slots__ = ("_context",)

    def __init__(self, context: MetadataView) -> None:
        self._context = context

    def register_controller(
        self, request: ControllerRegistrationRequest, caller: Caller
    ) -> ControllerResult[ControllerRegistrationResponse]:
        """The newest registration of an id counts; one that says nothing new writes nothing."""
        image = self._context.image
        if image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
            raise ControllerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"controllers register from metadata.version {CONTROLLER_REGISTRATION_LEVEL} on",
            )
        if request.controller_id < 0:
            raise invalid(f"the controller id is {request.controller_id}")
        features = feature_ranges(request.features)
        check_features(image, features)
        wanted = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            end_points=end_points(request.listeners),
            features=features,
        )
        is_known = image.controllers.get(request.controller_id) == wanted
        return ControllerResult(() if is_known else (wanted,), ControllerRegistrationResponse())
