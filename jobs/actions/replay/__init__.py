"""A recorded step executed again, stage by stage, without the model: is the record what the settings say?"""
